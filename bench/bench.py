#!/usr/bin/env python3
"""Measures the examples and the matrix product on this machine, peers beside them in the same run, and says which targets are met.

usage: bench/bench.py [--json | --markdown] [--build FOLDER] [--rounds N] [--page-rounds N] [--quick] [--alone] [--only PART,...] [--isolated]
Parts: cpu (one thread and all, PyTorch beside them), webgpu (each adapter; PyTorch on CUDA), host (the null backend), gemm (OpenBLAS beside
it), scale (models of growing size; PyTorch beside them), page (headless Chromium: jax-js and tfjs beside it). What is not installed is one line that says how to get it, never an error.
`make bench` builds and runs this; bench/README.md says what the numbers are.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import shlex
import shutil
import statistics
import subprocess
import sys

import scale

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXAMPLES = ("mlp-sin", "transformer-add")
PARTS = ("cpu", "webgpu", "host", "gemm", "scale", "page")
TORCH_PLACES = (sys.executable, "python3", "/usr/bin/python3")
GET_TORCH = "PyTorch: not installed; apt-get install python3-torch libopenblas0-pthread, or pip install torch"


class Run:
    """What was asked for, and what came of it: rows (one for each system, place and workload), notes, commands."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.build = pathlib.Path(arguments.build)
        self.program = self.build / "tensorgrad"
        self.samples = {}  # (part, workload, system, where) -> list of what each round gave
        self.notes = []
        self.commands = []

    def add(self, part, workload, system, where, sample):
        self.samples.setdefault((part, workload, system, where), []).append(sample)

    def note(self, text):
        if text not in self.notes:
            self.notes.append(text)

    def lines(self, command, environment=None, timeout=900):
        """Runs a command; its JSON lines. A command that fails is a note."""
        shown = shlex.join(os.path.relpath(part, ROOT) if str(part).startswith(str(ROOT)) else str(part) for part in command)
        shown = " ".join([f"{name}={value}" for name, value in (environment or {}).items()] + [shown])
        if shown not in self.commands:
            self.commands.append(shown)
        try:
            done = subprocess.run([str(part) for part in command], env={**os.environ, **(environment or {})}, cwd=ROOT,
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, check=False)
            output, wrong = done.stdout, done.stderr.strip() if done.returncode else ""
        except (OSError, subprocess.TimeoutExpired) as error:
            output, wrong = "", str(error)
        if wrong:
            self.note(f"{shown}: {wrong.splitlines()[-1][:200]}")
        return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def find_torch():
    """A Python that has torch, or None."""
    for place in TORCH_PLACES:
        found = shutil.which(place)
        if found and subprocess.run([found, "-c", "import torch"], capture_output=True, check=False).returncode == 0:
            return found
    return None


def openblas(run):
    """One thread, and its AVX-512 kernels where ours has such: releases that do not know a processor fall back to AVX2."""
    found = run.lines([run.program, "devices", "--json"])
    vectors = found[0]["cpu"]["vectors"] if found else ""
    kernels = {"OPENBLAS_CORETYPE": "SkylakeX"} if vectors == "avx512" else {}
    return {"OPENBLAS_NUM_THREADS": "1", **kernels}


# ---------------------------------------------------------------- parts

def bench_cpu(run, torch, threads):
    """Our steps and PyTorch's on that number of threads, once; ratios to the contractions at the rate of
    matmul:512 in this round, on one thread."""
    where = "1 thread" if threads == 1 else f"{threads} threads"
    steps = ["--steps", "20"] if run.arguments.quick else []
    command = [run.program, "bench", "matmul:512", *EXAMPLES, "--device", "cpu", "--threads", threads, "--json", *steps]
    contractions = {}
    for line in run.lines(command):
        if line["workload"] == "matmul:512":
            if threads == 1:
                run.add("cpu", "matmul:512", "tensorgrad", "1 thread", line)
            continue
        contractions[line["workload"]] = line.get("ms_contractions"), line.get("ratio_min") and line["ms_min"] / line["ratio_min"]
        run.add("cpu", line["workload"], "tensorgrad", where, line)
    if not torch:
        return
    environment = {**openblas(run), "OPENBLAS_NUM_THREADS": str(threads)}
    for line in run.lines([torch, ROOT / "bench/torch_steps.py", "--threads", threads, "--seconds", 0.2 if run.arguments.quick else 2], environment):
        at = contractions.get(line["workload"], (None, None))
        if line["workload"] in EXAMPLES and "error" not in line and all(at):
            line["ratio"], line["ratio_min"] = line["ms_per_step"] / at[0], line["ms_min"] / at[1]
        run.add("cpu", line["workload"], f"PyTorch {line.get('version', '')} {line['way']}", where, line)


def adapters(run):
    found = run.lines([run.program, "devices", "--json"])
    if not found or found[0].get("webgpu_none"):
        run.note(f"WebGPU: {found[0]['webgpu_none'] if found else 'no answer'}; scripts/get-webgpu fetches Dawn, TENSORGRAD_WEBGPU_LIB says where it is")
        return []
    return found[0]["webgpu"]


def bench_webgpu(run, adapter, counted):
    real = adapter["type"] != "cpu"
    where = f"{adapter['name']} ({adapter['backend']})"
    choose = ["--device", "webgpu", "--adapter", f"#{adapter['index']}", "--json"]
    quick = run.arguments.quick or not real
    jobs = [(["mlp-sin", "--steps", 20 if quick else 2000], None), (["transformer-add", "--steps", 3 if quick else 500], None)]
    if real and not run.arguments.quick:
        jobs += [(["matmul:4096"], None), (["matmul:4096"], {"TENSORGRAD_WEBGPU_TOGGLES": "disable_robustness"})]
    for words, environment in jobs:
        for line in run.lines([run.program, "bench", *words, *choose], environment):
            if counted:
                run.add("webgpu", line["workload"], "tensorgrad" + (", robustness off" if environment else ""), where,
                        {**line, "real": real})


def bench_cuda(run, torch):
    for line in run.lines([torch, ROOT / "bench/torch_steps.py", "--cuda", "--seconds", 0.2 if run.arguments.quick else 2]):
        run.add("webgpu", line["workload"], f"PyTorch {line.get('version', '')} {line['way']}", f"{line.get('adapter', '')} (cuda)",
                {**line, "real": True})


def bench_host(run):
    for line in run.lines([run.build / "bench/bench_host", "--steps", 100 if run.arguments.quick else 2000]):
        if "missing" in line:
            run.note(f"host cost: {line['missing']}")
        else:
            run.add("host", line["workload"], "tensorgrad", "Dawn, null backend", line)


def bench_gemm(run):
    quick = ["--quick"] if run.arguments.quick else []
    for line in run.lines([run.build / "bench/bench_gemm", "--json", *quick], openblas(run)):
        peer = line.get("openblas_gflops") or None
        run.add("gemm", line["name"], "tensorgrad", line["isa"],
                {"gflops": line["gflops"], "peer_gflops": peer, "times": peer and line["gflops"] / peer})
    if run.samples and not any(sample.get("peer_gflops") for samples in run.samples.values() for sample in samples):
        run.note("OpenBLAS: not installed; apt-get install libopenblas0-pthread")


def bench_page(run):
    node = shutil.which("node")
    if not node:
        return run.note("browser: Node is not installed (20 or newer)")
    how = ["--rounds", 2, "--budget", 100] if run.arguments.quick else ["--rounds", run.arguments.page_rounds]
    how += ["--isolated"] * run.arguments.isolated + ["--alone"] * run.arguments.alone
    for line in run.lines([node, ROOT / "bench/page/run.mjs", *how], timeout=1800):
        if "missing" in line:
            run.note(f"browser: {line['missing']}")
        elif "workload" not in line:
            run.browser = f"Chromium {line['version']}"
        elif "error" in line:
            run.note(f"browser: {line['system']} {line['device']} {line['workload']}: {line['error']}")
        else:
            name = line["system"] + (f" {line['version']}" if line.get("version") else "")
            where = line["adapter"] if line["device"] == "webgpu" else "wasm" if line["system"] != "tensorgrad" else line["where"]
            run.add("page", line["workload"], name, where, line)
    return None


def measure(run, parts):
    arguments = run.arguments
    asked = {"cpu", "webgpu", "scale"} & set(parts) and not arguments.alone
    torch = find_torch() if asked else None
    if asked and not torch:
        run.note(GET_TORCH)
    cores = os.cpu_count() or 1
    listed = adapters(run) if {"webgpu", "scale"} & set(parts) else []
    found = listed if "webgpu" in parts else []
    if any(each["type"] != "cpu" for each in found):
        for adapter in found:
            bench_webgpu(run, adapter, counted=False)  # drivers run a shader they have not seen before slowly
    for _ in range(arguments.rounds):
        if "cpu" in parts:
            for threads in sorted({1, cores}):
                bench_cpu(run, torch, threads)
        for adapter in found:
            bench_webgpu(run, adapter, counted=True)
        if "webgpu" in parts and torch:
            bench_cuda(run, torch)
        if "host" in parts:
            bench_host(run)
    if "gemm" in parts:
        bench_gemm(run)
    if "scale" in parts:
        scale.measure(run, torch, listed, cores)
    if "page" in parts:
        bench_page(run)


# ---------------------------------------------------------------- rows and targets

def rows_of(run):
    rows = []
    for (part, workload, system, where), samples in run.samples.items():
        row = {"part": part, "workload": workload, "system": system, "where": where, "rounds": len(samples)}
        errors = [sample["error"] for sample in samples if "error" in sample]
        if errors:
            run.note(f"{system}, {workload}: {errors[0]}")
            continue
        for key, pick in (("ms_per_step", statistics.median), ("ms_min", min), ("ms_in_flight", statistics.median), ("ratio", statistics.median),
                          ("ratio_min", min), ("gflops", statistics.median), ("peer_gflops", statistics.median),
                          ("times", statistics.median), ("dispatches", max), ("peak_bytes", max), ("loss_first", max),
                          ("loss_last", max), ("apart_first", max), ("real", max), ("parameters", max), ("kernels", max),
                          ("compile_s", statistics.median), ("ms_per_step_pipelined", statistics.median),
                          ("ms_per_step_train", statistics.median), ("gflop", max), ("tflops", statistics.median)):
            values = [sample[key] for sample in samples if sample.get(key) is not None]
            row[key] = pick(values) if values else None
        rows.append(row)
    seen = {workload: i for i, (_, workload, _, _) in reversed(list(enumerate(run.samples)))}
    return sorted(rows, key=lambda row: (PARTS.index(row["part"]), row["where"] if row["part"] == "cpu" else "", seen[row["workload"]]))


def find(rows, part, workload, system="tensorgrad", **more):
    return [row for row in rows if row["part"] == part and row["workload"] == workload and row["system"].startswith(system)
            and all(row.get(key) == value for key, value in more.items())]


def targets_of(rows):
    """Each target of the speed issue: what, the wanted value as text, the measured value or None, whether it is met, what is beside it."""
    out = []

    def target(what, wanted, value, met, text=None, beside=""):
        out.append({"what": what, "wanted": wanted, "measured": value, "met": None if value is None else met(value),
                    "text": "not measured here" if value is None else text or f"{value:.3g}", "beside": beside})

    gpu = [row for row in rows if row["part"] == "webgpu" and row["real"] and row["system"].startswith("tensorgrad")]
    programs = [row for row in gpu if row["dispatches"]] or [row for row in rows if row["part"] == "host"]

    def of(source, workload, key, system=None):
        values = [row[key] for row in source if row["workload"] == workload and row[key] is not None and system in (None, row["system"])]
        return min(values) if values else None

    for workload, most in (("mlp-sin", 5), ("transformer-add", 48)):
        target(f"{workload}: dispatches a step", f"<= {most}", of(programs, workload, "dispatches"), lambda v, m=most: v <= m)
    target("transformer-add: peak bytes of the program", "<= 12 MB", of(programs, "transformer-add", "peak_bytes"), lambda v: v <= 12e6,
           text=(lambda v: v and f"{v / 1e6:.1f} MB")(of(programs, "transformer-add", "peak_bytes")))
    for workload, most in (("mlp-sin", 0.05), ("transformer-add", 0.25)):
        peers = find(rows, "webgpu", workload, "PyTorch")
        target(f"{workload}: ms a step on a GPU", f"<= {most}", of(gpu, workload, "ms_per_step"), lambda v, m=most: v <= m,
               beside=", ".join(f"{row['system']} {row['ms_per_step']:.3g}" for row in peers))
    for system, least in (("tensorgrad", 34e3), ("tensorgrad, robustness off", 44e3)):
        value = of(gpu, "matmul:4096", "gflops", system)
        target(f"matmul:4096 on a GPU, TFLOP/s{system.removeprefix('tensorgrad')}", f">= {least / 1e3:.0f}", value,
               lambda v, m=least: v >= m, text=value and f"{value / 1e3:.1f}",
               beside=", ".join(f"{row['system']} {row['gflops'] / 1e3:.1f}" for row in find(rows, "webgpu", "matmul:4096", "PyTorch")))
    for workload, most in (("transformer-add", 1.4), ("mlp-sin", 2.0)):
        ours = find(rows, "cpu", workload, where="1 thread")
        peers = find(rows, "cpu", workload, "PyTorch", where="1 thread")
        target(f"{workload}: CPU, one thread, step / contractions", f"<= {most}", ours[0]["ratio"] if ours else None, lambda v, m=most: v <= m,
               beside=", ".join(f"{row['system']} {row['ratio']:.2f}" for row in peers if row["ratio"]))
    for workload in EXAMPLES:
        ours = [row for row in find(rows, "page", workload) if row["where"].startswith("cpu")]
        peers = [row for system in ("jax-js", "tfjs") for row in find(rows, "page", workload, system, where="wasm")]
        best = min((row["ms_per_step"] for row in peers), default=None)
        target(f"{workload}: browser CPU, times faster than the better peer", ">= 3", best / ours[0]["ms_per_step"] if ours and best else None,
               lambda v: v >= 3, beside=", ".join(f"{row['system']} {row['ms_per_step']:.3g} ms" for row in ours + peers))
    target("transformer-add: host cost of a step, ms", "<= 0.05", of([row for row in rows if row["part"] == "host"], "transformer-add", "ms_per_step"),
           lambda v: v <= 0.05)
    scale.targets(rows, target)
    return out


# ---------------------------------------------------------------- printing

TITLES = {
    "cpu": "CPU. ratio: a step over its contractions alone at the rate of this run's matmul:512 on one thread",
    "webgpu": "GPU, the loss read every step",
    "host": "What a step costs the processor on WebGPU: Dawn's null backend runs nothing",
    "gemm": "Matrix products, one thread, OpenBLAS beside them",
    "scale": "Models of growing size: a step waited for, in flight, and on data that is on the device (train)",
    "page": "One page of a browser, the loss awaited every step (in flight: steps not waited for one by one)",
}
COLUMNS = (  # title, key, how
    ("ms/step", "ms_per_step", "{:.4g}"), ("least", "ms_min", "{:.4g}"), ("in flight", "ms_in_flight", "{:.4g}"),
    ("pipelined", "ms_per_step_pipelined", "{:.4g}"), ("train", "ms_per_step_train", "{:.4g}"), ("TFLOP/s", "tflops", "{:.3g}"), ("GFLOP/s", "gflops", "{:.0f}"),
    ("OpenBLAS", "peer_gflops", "{:.0f}"), ("times", "times", "{:.2f}"),
    ("ratio", "ratio", "{:.2f}"), ("ratio, least", "ratio_min", "{:.2f}"), ("dispatches", "dispatches", "{}"),
    ("peak MB", "peak_bytes", "{:.2f}"), ("first loss", "loss_first", "{:.4g}"), ("last", "loss_last", "{:.3g}"),
    ("kernels", "kernels", "{}"), ("compile s", "compile_s", "{:.2f}"), ("parameters", "parameters", "{}"),
)


def cells(part, rows):
    columns = [column for column in COLUMNS if any(row.get(column[1]) is not None for row in rows)]
    left_out = {"page": ("loss_last",), "scale": ("gflops", "ratio", "ratio_min", "loss_first", "loss_last")}.get(part, ())
    if part != "scale":
        left_out = (*left_out, "ms_per_step_pipelined", "ms_per_step_train", "tflops", "kernels", "compile_s", "parameters")
    columns = [column for column in columns if column[1] not in left_out]
    yield ["workload", "system", "where", *(title for title, _, _ in columns)]
    for row in rows:
        values = []
        for _, key, how in columns:
            value = row.get(key)
            values.append("" if value is None else how.format(value / 1e6 if key == "peak_bytes" else value))
        yield [row["workload"], row["system"], row["where"], *values]


def table(lines, markdown):
    lines = [[str(cell) for cell in line] for line in lines]
    if markdown:
        print("| " + " | ".join(lines[0]) + " |")
        print("|" + "---|" * len(lines[0]))
        for line in lines[1:]:
            print("| " + " | ".join(line) + " |")
    else:
        widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
        for line in lines:
            print("  ".join(cell.ljust(width) if i < 3 else cell.rjust(width) for i, (cell, width) in enumerate(zip(line, widths))).rstrip())
    print()


def machine(run):
    cpu = platform.processor() or platform.machine()
    try:
        names = [line.split(":", 1)[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
        cpu = names[0] if names else cpu
    except OSError:
        pass
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    try:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # no git
        commit = ""
    return {"date": datetime.date.today().isoformat(), "cpu": cpu, "cores": os.cpu_count(), "system": f"{platform.system()} {platform.machine()}",
            "commit": commit or None, "load_before": load, "browser": getattr(run, "browser", None)}


def show(run, about, rows, targets):
    markdown = run.arguments.markdown
    heading = "### {}\n" if markdown else "== {}"
    print(", ".join(str(part) for part in (about["date"], about["cpu"], f"{about['cores']} cores", about["system"], about["browser"],
                                           f"commit {about['commit']}" if about["commit"] else None) if part))
    if (about["load_before"] or 0) > 0.5 * (about["cores"] or 1):
        print(f"The machine was busy (load {about['load_before']:.1f} before the run): compare systems, not with other runs.")
    print()
    for part in PARTS:
        chosen = [row for row in rows if row["part"] == part]
        if chosen:
            print(heading.format(TITLES[part]))
            table(cells(part, chosen), markdown)
        if part == "scale" and any(row["system"] != "tensorgrad" for row in chosen):
            table(list(scale.side_by_side(chosen)), markdown)
    print(heading.format("Targets"))
    table([["target", "wanted", "measured", "met", "beside it"],
           *([each["what"], each["wanted"], each["text"], {None: "", True: "yes", False: "no"}[each["met"]], each["beside"]] for each in targets)],
          markdown)
    for note in run.notes:
        print(f"- {note}" if markdown else f"note: {note}")
    if markdown:
        print("\nCommands, in turn:\n\n```sh\n" + "\n".join(run.commands) + "\n```")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--json", action="store_true", help="one object a line: machine, rows, targets, notes")
    parser.add_argument("--markdown", action="store_true", help="tables for docs/performance.md")
    parser.add_argument("--build", default=str(ROOT / "build/bench"), help="where the programs were built")
    parser.add_argument("--rounds", type=int, default=3, help="how often everything is measured, in turn (3)")
    parser.add_argument("--page-rounds", type=int, default=8, help="turns of each system on the page (8)")
    parser.add_argument("--plot", metavar="FILE.svg", help="draw ms and MB over parameters, of the part scale")
    parser.add_argument("--quick", action="store_true", help="a few steps of everything: does it run?")
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts, of {','.join(PARTS)}")
    parser.add_argument("--alone", action="store_true", help="no peers")
    parser.add_argument("--isolated", action="store_true", help="the page is cross-origin isolated: it may use threads")
    arguments = parser.parse_args()
    parts = arguments.only.split(",")
    if set(parts) - set(PARTS):
        parser.error(f"parts are {', '.join(PARTS)}")
    if arguments.quick:
        arguments.rounds = 1
    run = Run(arguments)
    if not run.program.exists():
        parser.error(f"{run.program} is not there: make bench builds it")
    about = machine(run)
    measure(run, parts)
    about["browser"] = getattr(run, "browser", None)
    rows = rows_of(run)
    targets = targets_of(rows)
    drawn = scale.plot(rows) if arguments.plot else None
    if drawn:
        pathlib.Path(arguments.plot).write_text(drawn, encoding="utf8")
    elif arguments.plot:
        run.note("--plot: nothing to draw; it needs the part scale")
    if not arguments.json:
        show(run, about, rows, targets)
        return 0 if rows else 1
    for kind, lines in (("machine", [about]), ("row", rows), ("target", targets), ("note", [{"text": note} for note in run.notes])):
        for line in lines:
            print(json.dumps({"kind": kind, **line}))
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main())
