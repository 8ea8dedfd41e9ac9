#!/usr/bin/python3
"""Trains the examples, and the networks of tests/curve_models.c, in PyTorch (Debian's python3-torch)
from the initial values and batches in the files NAME.safetensors of a folder, and writes the losses
as a C header. Called by scripts/make_curves.sh.

usage: make_curves.py SEED FOLDER HEADER [--check-noise]
--check-noise trains in float64 too and prints how far the curves differ by rounding alone.
"""
import json
import math
import struct
import sys

import torch

STEPS = 50
torch.set_num_threads(1)


def read_dump(path, dtype):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = file.read()
    params, batches = {}, {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        kind = torch.float32 if entry["dtype"] == "F32" else torch.int32
        tensor = torch.frombuffer(bytearray(data[begin:end]), dtype=kind).reshape(entry["shape"])
        group, name = name.split(":", 1)
        if group == "param":
            params[name] = tensor.to(dtype).clone().requires_grad_(True)
        else:
            batches[name] = tensor.to(dtype) if kind == torch.float32 else tensor.long()
    return params, batches


# ---------------------------------------------------------------- the models

def mlp_sin(p, batch):
    h = torch.relu(batch["x"] @ p["l1.W"] + p["l1.b"])
    h = torch.relu(h @ p["l2.W"] + p["l2.b"])
    return torch.mean((h @ p["l3.W"] + p["l3.b"] - batch["y"]) ** 2)


def layer_norm(p, name, x):
    return torch.nn.functional.layer_norm(x, (x.shape[-1],), p[f"{name}.g"], p[f"{name}.b"], 1e-5)


def linear(p, name, x):
    return x @ p[f"{name}.W"] + p[f"{name}.b"]


def transformer_add(p, batch, heads=4):
    tokens, targets = batch["tokens"], batch["targets"]
    rows, time = tokens.shape
    x = p["tokenEmbedding"][tokens] + p["positionEmbedding"]
    width = x.shape[-1]
    hidden = torch.triu(torch.ones(time, time, dtype=torch.bool), 1)
    layer = 0
    while f"layers.{layer}.ln1.g" in p:
        name = f"layers.{layer}"
        h = layer_norm(p, f"{name}.ln1", x)
        q, k, v = (linear(p, f"{name}.attn.{part}", h).reshape(rows, time, heads, width // heads).transpose(1, 2) for part in "qkv")
        scores = (q @ k.transpose(-1, -2)) / math.sqrt(width / heads)
        weights = torch.softmax(scores.masked_fill(hidden, float("-inf")), -1)
        x = x + linear(p, f"{name}.attn.o", (weights @ v).transpose(1, 2).reshape(rows, time, width))
        h = layer_norm(p, f"{name}.ln2", x)
        x = x + linear(p, f"{name}.mlp.down", torch.relu(linear(p, f"{name}.mlp.up", h)))
        layer += 1
    logits = layer_norm(p, "lnFinal", x) @ p["tokenEmbedding"].t()
    return torch.nn.functional.cross_entropy(logits.reshape(rows * time, -1), targets.reshape(-1), ignore_index=-1)


def conv_bars(p, batch):
    h = torch.nn.functional.conv2d(batch["image"], p["conv1.W"], p["conv1.b"], padding=1)
    h = torch.nn.functional.max_pool2d(torch.relu(h), 2)
    h = torch.relu(torch.nn.functional.conv2d(h, p["conv2.W"], p["conv2.b"], stride=2, padding=1))
    return torch.nn.functional.cross_entropy(linear(p, "output", h.flatten(1)), batch["kind"])


def dropout_sin(p, batch):
    h = dropout(torch.relu(linear(p, "l1", batch["x"])), 0.1, batch, 0)
    h = dropout(torch.tanh(linear(p, "l2", h)), 0.3, batch, 1)
    return torch.mean((linear(p, "l3", h) - batch["y"]) ** 2)


def recurrent(p, name, x, run):
    """One layer, from states of zeros, batch first; PyTorch's matrices are the transposes of ours."""
    weights = [p[f"{name}.Wx"].t(), p[f"{name}.Wh"].t(), p[f"{name}.bx"], p[f"{name}.bh"]]
    hidden = weights[1].shape[1]
    zeros = [torch.zeros(1, x.shape[0], hidden, dtype=x.dtype) for _ in range(2)]
    return run(x, zeros if run is torch.lstm else zeros[0], weights, True, 1, 0.0, True, False, True)[0]


def recurrent_echo(p, batch):
    h = recurrent(p, "lstm", recurrent(p, "gru", batch["x"], torch.gru), torch.lstm)
    return torch.mean((linear(p, "output", h) - batch["y"]) ** 2)


# ---------------------------------------------------------------- random numbers, as docs/internals/graph.md defines them

def philox(counter, key):
    """Philox 4x32 with ten rounds (Salmon et al. 2011)."""
    a, b, c, d = counter
    low, high = key
    for _ in range(10):
        left, right = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (right >> 32) ^ b ^ low, right & 0xFFFFFFFF, (left >> 32) ^ d ^ high, left & 0xFFFFFFFF
        low, high = (low + 0x9E3779B9) & 0xFFFFFFFF, (high + 0xBB67AE85) & 0xFFFFFFFF
    return a, b, c, d


def dropout(x, p, batch, stream):
    """x / (1 - p) where 31 random bits are below (1 - p) 2^31, else 0."""
    low, high, _, _ = philox((0, 0, 0, 1), (batch["seed"] & 0xFFFFFFFF, batch["seed"] >> 32))
    key = ((low + batch["step"] - 1) & 0xFFFFFFFF, high)
    bound = int((1 - p) * 2 ** 31 + 0.5)
    words = (philox((i, 0, stream, 0), key) for i in range(x.numel()))
    kept = torch.tensor([((first << 32 | second) >> 33) < bound for first, second, _, _ in words]).reshape(x.shape)
    return torch.where(kept, x * (1 / (1 - p)), torch.zeros_like(x))


# ---------------------------------------------------------------- optimisers

def decayed(name):
    """Weights and tables decay; biases and gains do not."""
    return name.endswith(".W") or name.endswith("Embedding")


def adam_uncorrected(params, rate, decay=0.0):
    """p = (1 - lr wd) p - lr sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt v + eps)."""
    m = {name: torch.zeros_like(p) for name, p in params.items()}
    v = {name: torch.zeros_like(p) for name, p in params.items()}

    def update(t):
        lr = rate(t)
        with torch.no_grad():
            for name, p in params.items():
                g = p.grad
                m[name].mul_(0.9).add_(g, alpha=1 - 0.9)
                v[name].mul_(0.999).add_(g * g, alpha=1 - 0.999)
                if decay and decayed(name):
                    p.mul_(1 - lr * decay)
                p.sub_(lr * math.sqrt(1 - 0.999 ** t) / (1 - 0.9 ** t) * m[name] / (v[name].sqrt() + 1e-8))
    return update


def from_torch(make, params, rate, decay=0.0, clip=0.0):
    """An optimiser of torch.optim. Before each step its rate is set and gradients are clipped."""
    groups = [{"params": [p for n, p in params.items() if decayed(n)], "weight_decay": decay},
              {"params": [p for n, p in params.items() if not decayed(n)], "weight_decay": 0.0}]
    optimizer = make(groups, rate(1))

    def update(t):
        for group in optimizer.param_groups:
            group["lr"] = rate(t)
        scale = clip_scale(params, clip)
        for p in params.values():
            p.grad.mul_(scale)
        optimizer.step()
    return update


def clip_scale(params, clip):
    if not clip:
        return 1.0
    norm = math.sqrt(sum(float((p.grad.double() ** 2).sum()) for p in params.values()))
    return min(1.0, clip / norm)


def adamw(groups, lr):
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.999), eps=1e-8)


def sgd(momentum, nesterov):
    return lambda groups, lr: torch.optim.SGD(groups, lr=lr, momentum=momentum, nesterov=nesterov)


def constant(value):
    return lambda t: value


def linear_decay(peak, final, steps):
    return lambda t: peak + (final - peak) * min(t / steps, 1.0)


SCHEDULE = linear_decay(0.005, 0.0005, 1500)
CURVES = [  # name, example, optimiser; tests/test_curves.c sets up the same ones
    ("mlp_sin_adam", "mlp-sin", lambda p: adam_uncorrected(p, constant(0.005))),
    ("mlp_sin_adam_corrected", "mlp-sin", lambda p: from_torch(adamw, p, constant(0.005))),
    ("mlp_sin_sgd", "mlp-sin", lambda p: from_torch(sgd(0.0, False), p, constant(0.01))),
    ("mlp_sin_sgd_momentum", "mlp-sin", lambda p: from_torch(sgd(0.9, False), p, constant(0.002))),
    ("mlp_sin_sgd_nesterov", "mlp-sin", lambda p: from_torch(sgd(0.9, True), p, constant(0.002))),
    ("mlp_sin_sgd_clipped", "mlp-sin", lambda p: from_torch(sgd(0.9, False), p, constant(0.002), clip=1.0)),
    ("transformer_add_adamw", "transformer-add", lambda p: adam_uncorrected(p, SCHEDULE, decay=0.01)),
    ("transformer_add_adamw_corrected", "transformer-add", lambda p: from_torch(adamw, p, SCHEDULE, decay=0.01)),
    ("conv_bars", "conv-bars", lambda p: adam_uncorrected(p, constant(0.01))),
    ("dropout_sin", "dropout-sin", lambda p: adam_uncorrected(p, constant(0.003))),
    ("recurrent_echo", "recurrent-echo", lambda p: adam_uncorrected(p, constant(0.01))),
]
FORWARD = {"mlp-sin": mlp_sin, "transformer-add": transformer_add, "conv-bars": conv_bars, "dropout-sin": dropout_sin,
           "recurrent-echo": recurrent_echo}


def train(example, seed, folder, make_update, dtype):
    params, batches = read_dump(f"{folder}/{example}.safetensors", dtype)
    update = make_update(params)
    losses = []
    for t in range(1, STEPS + 1):
        for p in params.values():
            p.grad = None
        batch = {name: stack[t - 1] for name, stack in batches.items()}
        loss = FORWARD[example](params, {**batch, "seed": seed, "step": t})
        loss.backward()
        losses.append(loss.item())
        update(t)
    return losses


def main():
    seed, folder, header = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    lines = [f"/* Losses of the first {STEPS} steps of the examples, and of tests/curve_models.c, in PyTorch {torch.__version__}, float32, one thread.",
             " * Made by scripts/make_curves.sh; do not edit. */", "#ifndef TENSORGRAD_TESTS_CURVES_H",
             "#define TENSORGRAD_TESTS_CURVES_H", f"#define CURVE_STEPS {STEPS}",
             f"#define CURVE_SEED {seed}"]
    for name, example, make_update in CURVES:
        losses = train(example, seed, folder, make_update, torch.float32)
        if "--check-noise" in sys.argv:
            exact = train(example, seed, folder, make_update, torch.float64)
            apart = [abs(a - b) / abs(b) for a, b in zip(losses, exact)]
            print(f"{name}: {losses[0]:.6f} -> {losses[-1]:.6f}, float32 against float64: {max(apart):.2e} relative at most")
        lines.append(f"static const float curve_{name}[CURVE_STEPS] = {{")
        for i in range(0, STEPS, 5):
            lines.append("    " + ", ".join(f"{loss:.9g}F" for loss in losses[i:i + 5]) + ",")
        lines.append("};")
    lines.append("#endif")
    with open(header, "w", encoding="ascii") as out:
        out.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
