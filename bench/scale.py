#!/usr/bin/env python3
"""How cost grows with the model: the part "scale" of bench.py, its targets, and a plot of ms and MB over parameters.

usage: bench/scale.py ROWS.jsonl OUT.svg      draws the plot from what bench.py --only scale --json printed
       bench/scale.py --table ROWS.jsonl      ours, theirs and the targets side by side, as a table in Markdown
"""
import json
import math
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# On a GPU: workload, ms that are wanted, MB that are wanted (None: no target). Steps of gpt: and of the example are waited for
# one by one; the others are made on data that is on the device.
GPU = (
    ("transformer-add", 0.25, 12), ("gpt:L4,D128,H4,T64,B12,V65", 0.8, 30), ("gpt:L6,D256,H8,T128,B32,V65", 5.0, 300),
    ("gpt:L6,D384,H6,T256,B64,V65", 31, 1300), ("gpt:L12,D768,H12,T1024,B1,V50257", 35, 3000),
    ("mlp:W64,N4,B256", 0.05, None), ("mlp:W64,N4,B16384", 0.12, None), ("mlp:W64,N4,B262144", 0.9, None),
    ("mlp:W128,N6,B65536", 1.2, None), ("mlp:W1024,N3,B4096", 1.5, None),
    ("conv:C32,B64", 0.9, None), ("conv:C32,B512", 5.0, None), ("conv:C64,B256", 6.5, None),
    ("gru:H128,T64,B32", 0.5, None), ("gru:H256,T128,B64", 3.6, None),
)
# On the CPU: at most this part of PyTorch's time.
CPU = ("gpt:L4,D128,H4,T64,B12,V65", "mlp:W64,N4,B4096", "conv:C32,B16", "gru:H128,T64,B32")
CPU_PART = 0.75
QUICK = ("gpt:L1,D32,H2,T16,B4,V65", "mlp:W32,N2,B256")


def is_waited(workload):
    """Is a step timed until its loss is read?"""
    return workload.startswith(("gpt:", "transformer-add"))


def time_of(row):
    """The time that the target is about."""
    return row["ms_per_step"] if is_waited(row["workload"]) or not row.get("ms_per_step_train") else min(row["ms_per_step"], row["ms_per_step_train"])


def measure(run, torch, adapters, cores):
    """Our steps on the best adapter that is a GPU, else on the CPU, and PyTorch's beside them."""
    quick = run.arguments.quick
    real = [each for each in adapters if each["type"] != "cpu"]
    seconds = ["--seconds", 0.1 if quick else 1]
    if real:
        names, where = [name for name, _, _ in GPU] if not quick else QUICK, f"{real[0]['name']} ({real[0]['backend']})"
        choose = ["--device", "webgpu", "--adapter", f"#{real[0]['index']}"]
        for name in names:
            for line in run.lines([run.program, "bench", name, *choose, "--json"]):
                run.add("scale", name, "tensorgrad", where, {**line, "real": True})
        peers = [name for name in names if ":" in name]
        for line in run.lines([torch, ROOT / "bench/torch_scale.py", *peers, "--cuda", *seconds]) if torch else []:
            run.add("scale", line["workload"], f"PyTorch {line.get('version', '')} {line['way']}", f"{line.get('adapter', '')} (cuda)",
                    {**line, "real": True})
        return
    for threads in sorted({1, cores}):
        names, where = CPU if not quick else QUICK, "1 thread" if threads == 1 else f"{threads} threads"
        steps = ["--steps", 3] if quick else []
        for line in run.lines([run.program, "bench", *names, "--device", "cpu", "--threads", threads, "--json", *steps]):
            run.add("scale", line["workload"], "tensorgrad", where, line)
        for line in run.lines([torch, ROOT / "bench/torch_scale.py", *names, "--threads", threads, *seconds]) if torch else []:
            run.add("scale", line["workload"], f"PyTorch {line.get('version', '')} {line['way']}", where, line)


def best_peer(rows, row, ways=("eager", "graph")):
    """PyTorch's least time for the same workload and place, in f32."""
    place = "cuda" if row.get("real") else row["where"]
    times = [peer["ms_per_step"] for peer in rows if peer["system"].startswith("PyTorch") and peer["workload"] == row["workload"]
             and place in peer["where"] and peer["system"].split(" ", 2)[-1] in ways]
    return min(times, default=None)


def targets(rows, target):
    """Calls target() for each size that was measured."""
    ours = [row for row in rows if row["part"] == "scale" and row["system"] == "tensorgrad"]
    for row in ours:
        peer = best_peer(rows, row)
        beside = f"PyTorch {peer:.3g}" if peer else ""
        wanted = next(((ms, mb) for name, ms, mb in GPU if name == row["workload"]), None) if row.get("real") else None
        if wanted:
            target(f"{row['workload']}: ms a step on a GPU", f"<= {wanted[0]}", time_of(row), lambda v, most=wanted[0]: v <= most, beside=beside)
            if wanted[1]:
                target(f"{row['workload']}: MB", f"<= {wanted[1]}", row["peak_bytes"] / 1e6, lambda v, most=wanted[1]: v <= most)
        elif not row.get("real") and peer:
            target(f"{row['workload']}: ms a step, {row['where']}", f"<= {CPU_PART} of PyTorch's", time_of(row),
                   lambda v, most=CPU_PART * peer: v <= most, beside=beside)


# ---------------------------------------------------------------- the plot

WIDTH, HEIGHT, LEFT, TOP, BOTTOM, GAP = 760, 330, 62, 34, 46, 74
COLOURS = ("#d1495b", "#9aa0a6", "#00798c", "#edae49", "#30638e", "#5c415d")


class Axis:
    """Logarithmic, from pixel `a` to pixel `b`, over all of the values."""

    def __init__(self, values, a, b):
        self.low, self.high = math.log10(min(values)) - 0.15, math.log10(max(values)) + 0.15
        self.a, self.b = a, b

    def at(self, value):
        return self.a + (math.log10(value) - self.low) / (self.high - self.low) * (self.b - self.a)

    def ticks(self):
        return [10.0 ** power for power in range(math.ceil(self.low), math.floor(self.high) + 1)]


def short(value):
    for unit, name in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:g}"


def escaped(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def panel(left, width, title, series, colours):
    """One diagram; series: {name: [(parameters, value)]}."""
    points = [point for line in series.values() for point in line]
    x, y = Axis([p for p, _ in points], left, left + width), Axis([v for _, v in points], HEIGHT - BOTTOM, TOP)
    out = [f'<text x="{left}" y="{TOP - 14}" font-weight="bold">{escaped(title)}</text>']
    for tick in x.ticks():
        out.append(f'<line x1="{x.at(tick):.1f}" y1="{TOP}" x2="{x.at(tick):.1f}" y2="{HEIGHT - BOTTOM}" stroke="#8884"/>')
        out.append(f'<text x="{x.at(tick):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{short(tick)}</text>')
    for tick in y.ticks():
        out.append(f'<line x1="{left}" y1="{y.at(tick):.1f}" x2="{left + width}" y2="{y.at(tick):.1f}" stroke="#8884"/>')
        out.append(f'<text x="{left - 6}" y="{y.at(tick) + 4:.1f}" text-anchor="end">{short(tick)}</text>')
    out.append(f'<text x="{left + width / 2:.1f}" y="{HEIGHT - BOTTOM + 34}" text-anchor="middle">parameters</text>')
    for name, line in series.items():
        path = " ".join(f"{x.at(p):.1f},{y.at(v):.1f}" for p, v in sorted(line))
        out.append(f'<polyline points="{path}" fill="none" stroke="{colours[name]}" stroke-width="2"/>')
        out += [f'<circle cx="{x.at(p):.1f}" cy="{y.at(v):.1f}" r="3" fill="{colours[name]}"><title>{escaped(name)}: {v:.4g}</title></circle>'
                for p, v in line]
    return out


def plot(rows):
    """SVG: ms and MB of the GPTs over their parameters, a line for each system."""
    sized = [row for row in rows if row["part"] == "scale" and row["workload"].startswith("gpt:") and row.get("parameters")]
    names = sorted(dict.fromkeys(row["system"] for row in sized), key=lambda name: not name.startswith("tensorgrad"))
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}

    def series(value):
        lines = {name: [(row["parameters"], value(row)) for row in sized if row["system"] == name and value(row)] for name in names}
        return {name: line for name, line in lines.items() if line}

    times, bytes_ = series(lambda row: row.get("ms_per_step")), series(lambda row: row.get("peak_bytes") and row["peak_bytes"] / 1e6)
    if not times or not bytes_:
        return None
    width = (WIDTH - 2 * LEFT - GAP) / 2
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT + 12 + 20 * len(names)}" font-family="sans-serif" font-size="12" fill="#888">']
    out += panel(LEFT, width, "ms a step", times, colours) + panel(LEFT + width + GAP, width, "MB", bytes_, colours)
    for i, name in enumerate(names):
        y = HEIGHT + 12 + 20 * i
        out.append(f'<line x1="{LEFT}" y1="{y - 4}" x2="{LEFT + 24}" y2="{y - 4}" stroke="{colours[name]}" stroke-width="2"/>')
        out.append(f'<text x="{LEFT + 32}" y="{y}">{escaped(name)}</text>')
    return "\n".join([*out, "</svg>", ""])


def side_by_side(rows):
    """Lines of a table: for each workload our time and MB, PyTorch's times, what is wanted. Rows of the system "tensorgrad, before" are what
    an earlier version took."""
    before = {row["workload"]: row for row in rows if row["system"] == "tensorgrad, before"}
    yield ["workload", *["before ms"] * bool(before), "ours ms", "PyTorch f32 eager", "graph", "tf32 graph", "bf16 eager", "wanted ms", "launches",
           *["before MB"] * bool(before), "ours MB", "wanted MB", "compile s"]
    wanted = {name: (ms, mb) for name, ms, mb in GPU}
    for row in rows:
        if row["part"] != "scale" or row["system"] != "tensorgrad":
            continue
        ms, mb = wanted.get(row["workload"], (None, None)) if row.get("real") else (None, None)
        peers = [best_peer(rows, row, (way,)) for way in ("eager", "graph", "graph tf32", "eager bf16")]
        old = before.get(row["workload"])
        then = [[time_of(old), old["peak_bytes"] / 1e6] if old else [None, None]] if before else []
        numbers = [*(each[0] for each in then), time_of(row), *peers, ms, row.get("dispatches"), *(each[1] for each in then),
                   row["peak_bytes"] / 1e6, mb, row.get("compile_s")]
        yield [row["workload"], *("-" if number is None else f"{number:.3g}" if number < 1000 else f"{number:,.0f}" for number in numbers)]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    source = sys.argv[2] if sys.argv[1] == "--table" else sys.argv[1]
    rows = [json.loads(line) for line in pathlib.Path(source).read_text(encoding="utf8").splitlines() if line.startswith("{")]
    rows = [row for row in rows if row.get("kind") == "row"]
    if sys.argv[1] == "--table":
        for i, line in enumerate(side_by_side(rows)):
            print("| " + " | ".join(line) + " |" + ("\n" + "|---" * len(line) + "|") * (i == 0))
        return
    drawn = plot(rows)
    if drawn is None:
        sys.exit(f"{sys.argv[1]}: no gpt: rows with parameters, times and bytes")
    pathlib.Path(sys.argv[2]).write_text(drawn, encoding="utf8")


if __name__ == "__main__":
    main()
