"""Steps of the two examples in PyTorch, as its users write them: nn.Module, torch.optim, eager; on a GPU as a CUDA graph too. Prints one
JSON line for each workload and way. bench.py calls it; by hand: python3 bench/torch_steps.py [--threads N] [--seconds S] [--cuda]

Own initial values of the same distributions and own batches of the same kind; loss_first and loss_last tell that it learns.
"""
import argparse
import json
import math
import time

import torch
from torch import nn
from torch.nn import functional

BATCH, HIDDEN = 256, 64                          # mlp-sin
ROWS, T, VOCABULARY, LAYERS, D, HEADS = 128, 8, 12, 3, 64, 4  # transformer-add
PLUS, EQUALS, ANSWER, IGNORE = 10, 11, 5, -1
BATCHES = 64


# ---------------------------------------------------------------- the models

class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(1, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1))

    def forward(self, x, y):
        return functional.mse_loss(self.layers(x), y)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.up, self.down = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)

    def attention(self, x, hidden):
        q, k, v = (part.view(ROWS, T, HEADS, D // HEADS).transpose(1, 2) for part in self.qkv(x).split(D, dim=-1))
        if hasattr(functional, "scaled_dot_product_attention"):
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-1, -2)) / math.sqrt(D / HEADS)
            mixed = torch.softmax(scores.masked_fill(hidden, float("-inf")), -1) @ v
        return self.out(mixed.transpose(1, 2).reshape(ROWS, T, D))

    def forward(self, x, hidden):
        x = x + self.attention(self.ln1(x), hidden)
        return x + self.down(torch.relu(self.up(self.ln2(x))))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, D), nn.Parameter(0.2 * torch.randn(T, D))
        nn.init.normal_(self.tokens.weight, std=0.2)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.final = nn.LayerNorm(D)
        self.register_buffer("hidden", torch.triu(torch.ones(T, T, dtype=torch.bool), 1))

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions
        for block in self.blocks:
            x = block(x, self.hidden)
        logits = self.final(x) @ self.tokens.weight.t()
        return functional.cross_entropy(logits.view(ROWS * T, VOCABULARY), targets.view(-1), ignore_index=IGNORE)


def initialise(model):
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=math.sqrt(2 / module.in_features))
            nn.init.zeros_(module.bias)
    return model


def optimizer_of(workload, model, **more):
    if workload == "mlp-sin":
        return torch.optim.Adam(model.parameters(), lr=0.005, **more)
    decayed = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() <= 1]
    return torch.optim.AdamW([{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}], lr=0.005, **more)


def set_rate(workload, optimizer, t):
    if workload == "transformer-add":
        for group in optimizer.param_groups:
            group["lr"] = 0.005 + (0.0005 - 0.005) * min(t / 1500, 1)


# ---------------------------------------------------------------- the data

def batches_of(workload):
    generator = torch.Generator().manual_seed(1)
    if workload == "mlp-sin":
        for _ in range(BATCHES):
            x = (2 * torch.rand(BATCH, 1, generator=generator) - 1) * math.pi
            yield x, torch.sin(x)
        return
    for _ in range(BATCHES):
        a, b = torch.randint(0, 100, (2, ROWS), generator=generator)
        total = a + b
        plus, equals = torch.full_like(a, PLUS), torch.full_like(a, EQUALS)
        text = torch.stack([a // 10, a % 10, plus, b // 10, b % 10, equals, total // 100, total // 10 % 10, total % 10], 1)
        targets = text[:, 1:].clone()
        targets[:, :ANSWER] = IGNORE
        yield text[:, :T].contiguous(), targets


# ---------------------------------------------------------------- ways to make a step: each returns step(batch, t) -> loss

def eager(workload, device):
    model = initialise({"mlp-sin": Mlp, "transformer-add": Transformer}[workload]()).to(device)
    optimizer = optimizer_of(workload, model)

    def step(batch, t):
        set_rate(workload, optimizer, t)
        optimizer.zero_grad(set_to_none=True)
        loss = model(*(each.to(device) for each in batch))
        loss.backward()
        optimizer.step()
        return loss.item()
    return step


def cuda_graph(workload, device):
    """The whole step recorded once, replayed with new inputs; the rate is that of the recording."""
    model = initialise({"mlp-sin": Mlp, "transformer-add": Transformer}[workload]()).to(device)
    optimizer = optimizer_of(workload, model, capturable=True)
    static = [each.to(device) for each in next(batches_of(workload))]

    def whole():
        optimizer.zero_grad(set_to_none=True)
        loss = model(*static)
        loss.backward()
        optimizer.step()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            whole()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = whole()

    def step(batch, t):
        for into, each in zip(static, batch):
            into.copy_(each)
        graph.replay()
        return loss.item()
    return step


def measure(workload, way, device, seconds):
    torch.manual_seed(1)
    step = {"eager": eager, "cuda graph": cuda_graph}[way](workload, device)
    batches = list(batches_of(workload))
    losses, times, t = [], [], 0
    end = None
    while end is None or time.perf_counter() < end or len(times) < 5:
        t += 1
        before = time.perf_counter()
        losses.append(step(batches[t % BATCHES], t))
        if t > 3:
            times.append(1e3 * (time.perf_counter() - before))
            end = end or time.perf_counter() + seconds
    times.sort()
    middle = (times[(len(times) - 1) // 2] + times[len(times) // 2]) / 2
    return {"workload": workload, "device": device, "way": way, "steps": len(times), "ms_per_step": middle, "ms_min": times[0],
            "loss_first": losses[0], "loss_last": losses[-1]}


def gemm(n, device, seconds):
    """Best GFLOP/s of a square product."""
    a, b = torch.rand(n, n, device=device), torch.rand(n, n, device=device)
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    best, end = math.inf, time.perf_counter() + seconds
    while time.perf_counter() < end:
        wait()
        before = time.perf_counter()
        torch.mm(a, b)
        wait()
        best = min(best, time.perf_counter() - before)
    return {"workload": f"matmul:{n}", "device": device, "way": "eager", "ms_min": 1e3 * best, "gflops": 2e-9 * n ** 3 / best}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--cuda", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    device = "cuda" if arguments.cuda else "cpu"
    if arguments.cuda and not torch.cuda.is_available():
        return
    about = {"version": torch.__version__, "threads": None if arguments.cuda else arguments.threads,
             "adapter": torch.cuda.get_device_name() if arguments.cuda else None}
    for size in (512, 4096) if arguments.cuda else (512,):
        print(json.dumps({**gemm(size, device, min(arguments.seconds, 0.5)), **about}), flush=True)
    for workload in ("mlp-sin", "transformer-add"):
        for way in ("eager", "cuda graph") if arguments.cuda else ("eager",):
            try:
                print(json.dumps({**measure(workload, way, device, arguments.seconds), **about}), flush=True)
            except (RuntimeError, TypeError, AttributeError) as error:  # an older PyTorch may not capture what is asked of it
                print(json.dumps({"workload": workload, "device": device, "way": way, "error": str(error)[:200]}), flush=True)


if __name__ == "__main__":
    main()
