"""Steps of the models of any size (examples/scale.c) in PyTorch, as its users write them; on a GPU as a CUDA graph too, with tf32 and bf16.
Prints one JSON line for each workload and way. bench.py calls it; by hand:
python3 bench/torch_scale.py gpt:L4,D128,H4,T64,B12,V65 mlp:W64,N4,B16384 [--threads N] [--seconds S] [--cuda]

Same layers, sizes, losses and optimisers; own initial values, one batch of random data.
"""
import argparse
import json
import statistics
import time

import torch
from torch import nn
from torch.nn import functional

USUAL = {"gpt": {"L": 4, "D": 128, "H": 4, "T": 64, "B": 12, "V": 65}, "mlp": {"W": 64, "N": 4, "B": 16384},
         "conv": {"C": 32, "B": 64}, "gru": {"H": 128, "T": 64, "B": 32}}
HAS_ATTENTION = hasattr(functional, "scaled_dot_product_attention")


def sizes_of(workload):
    """("gpt", {"L": 4, ...}) of "gpt:L4"."""
    family, _, keys = workload.partition(":")
    return family, {**USUAL[family], **{key[0]: int(key[1:]) for key in keys.split(",") if key}}


# ---------------------------------------------------------------- the models

class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, hidden):
        rows, length, width = x.shape
        q, k, v = (part.view(rows, length, self.heads, width // self.heads).transpose(1, 2) for part in self.qkv(self.ln1(x)).split(width, 2))
        if HAS_ATTENTION:
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1)) * (width // self.heads) ** -0.5
            mixed = torch.softmax(scores.masked_fill(hidden, float("-inf")), -1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, width))
        return x + self.down(functional.gelu(self.up(self.ln2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.words, self.positions = nn.Embedding(size["V"], size["D"]), nn.Parameter(0.02 * torch.randn(size["T"], size["D"]))
        nn.init.normal_(self.words.weight, std=0.02)
        self.blocks, self.final = nn.ModuleList(Block(size["D"], size["H"]) for _ in range(size["L"])), nn.LayerNorm(size["D"])
        self.register_buffer("hidden", torch.ones(size["T"], size["T"], dtype=torch.bool).triu(1))

    def forward(self, tokens, targets):
        x = self.words(tokens) + self.positions
        for block in self.blocks:
            x = block(x, self.hidden)
        logits = self.final(x) @ self.words.weight.t()
        return functional.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


class WithLoss(nn.Module):
    def __init__(self, net, loss):
        super().__init__()
        self.net, self.loss = net, loss

    def forward(self, x, y):
        out = self.net(x)
        return self.loss(out[0] if isinstance(out, tuple) else out, y)


def mlp(size):
    layers = [nn.Linear(2, size["W"]), nn.ReLU()]
    for _ in range(size["N"] - 1):
        layers += [nn.Linear(size["W"], size["W"]), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(size["W"], 3))


def conv(size):
    c = size["C"]
    layers = []
    for a, b, pools in ((3, c, False), (c, c, True), (c, 2 * c, False), (2 * c, 2 * c, True)):
        layers += [nn.Conv2d(a, b, 3, padding=1), nn.ReLU()] + [nn.MaxPool2d(2)] * pools
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(2 * c * 64, 10))


def model_of(family, size):
    """The model, whose call gives the loss, and one batch."""
    rows = size["B"]
    if family == "gpt":
        tokens = torch.randint(0, size["V"], (rows, size["T"]))
        return Gpt(size), (tokens, (7 * tokens + 3) % size["V"])
    if family == "mlp":
        return WithLoss(mlp(size), functional.mse_loss), (torch.rand(rows, 2), torch.rand(rows, 3))
    if family == "conv":
        return WithLoss(conv(size), functional.cross_entropy), (torch.rand(rows, 3, 32, 32), torch.randint(0, 10, (rows,)))
    net = nn.GRU(32, size["H"], batch_first=True)
    return WithLoss(net, functional.mse_loss), (torch.rand(rows, size["T"], 32), torch.rand(rows, size["T"], size["H"]))


# ---------------------------------------------------------------- ways to make a step: each returns a function that gives the loss

def prepare(workload, device, graph=False, bf16=False):
    family, size = sizes_of(workload)
    torch.manual_seed(1)
    model, batch = model_of(family, size)
    model, batch = model.to(device), [each.to(device) for each in batch]
    fused = {"fused": True, "capturable": graph} if device == "cuda" else {}
    kind, more = (torch.optim.AdamW, {"lr": 3e-4, "weight_decay": 0.1}) if family == "gpt" else (torch.optim.Adam, {"lr": 1e-3})
    optimizer = kind(model.parameters(), **more, **fused)

    def step():
        optimizer.zero_grad(set_to_none=not graph)
        with torch.autocast(device, torch.bfloat16, enabled=bf16):
            loss = model(*batch)
        loss.backward()
        if family == "gpt":
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    return (captured(step) if graph else step), sum(each.numel() for each in model.parameters())


def captured(step):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()

    def replay():
        graph.replay()
        return loss

    return replay


WAYS = (("eager", {}, False), ("graph", {"graph": True}, False), ("graph tf32", {"graph": True}, True), ("eager bf16", {"bf16": True}, False))


def measure(workload, device, seconds, way, options, tf32):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    step, parameters = prepare(workload, device, **options)
    first = [step().item() for _ in range(5)][0]
    times, began = [], time.perf_counter()
    while len(times) < 5 or time.perf_counter() - began < seconds:
        start = time.perf_counter()
        last = step().item()
        times.append(1e3 * (time.perf_counter() - start))
    return {"workload": workload, "way": way, "version": torch.__version__.split("+")[0], "parameters": parameters,
            "adapter": torch.cuda.get_device_name() if device == "cuda" else None, "ms_per_step": statistics.median(times), "ms_min": min(times),
            "peak_bytes": torch.cuda.max_memory_allocated() if device == "cuda" else None, "loss_first": first, "loss_last": last}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("workloads", nargs="+")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--cuda", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.cuda and not torch.cuda.is_available():
        return
    for workload in arguments.workloads:
        for way, options, tf32 in WAYS if arguments.cuda else WAYS[:1]:
            try:
                line = measure(workload, "cuda" if arguments.cuda else "cpu", arguments.seconds, way, options, tf32)
            except RuntimeError as error:  # one that does not fit, or cannot be captured
                line = {"workload": workload, "way": way, "error": str(error).splitlines()[0][:200]}
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
