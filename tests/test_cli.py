#!/usr/bin/env python3
"""The command line tool as a user meets it: results, JSON, messages, exit codes, files kept.

usage: tests/test_cli.py PATH_TO_TENSORGRAD [webgpu]        ends with: N passed, N failed
"webgpu": only what runs on a WebGPU adapter. That needs TENSORGRAD_WEBGPU_LIB; without it these are skipped, or fail under
TENSORGRAD_TEST_WEBGPU=required. Everything else runs with no library in reach.
"""
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import xml.dom.minidom

PROGRAM = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else "tensorgrad"
ONLY_WEBGPU = sys.argv[2:] == ["webgpu"]
ADAM_RATE = 0.005
LIBRARY = os.environ.get("TENSORGRAD_WEBGPU_LIB", "")
GPU = {"TENSORGRAD_WEBGPU_LIB": LIBRARY}
NO_GPU = {"TENSORGRAD_WEBGPU_LIB": "/no/such/library.so"}
passed, failed = 0, []


def call(*arguments, env=None, limit=600, stdout=subprocess.PIPE, preexec=None):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TENSORGRAD_")}
    environment.update({**NO_GPU, "TENSORGRAD_TUNING": "off", **(env or {})})
    done = subprocess.run([PROGRAM, *map(str, arguments)], stdout=stdout, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                          env=environment, timeout=limit, preexec_fn=preexec, check=False)
    return done.returncode, (done.stdout or b"").decode(), done.stderr.decode()


def losses(*arguments, **options):
    status, out, err = call("train", *arguments, "--json", **options)
    expect(status == 0, f"train {arguments} exits {status}: {err}")
    return [json.loads(line) for line in out.splitlines()]


def expect(condition, message):
    if not condition:
        raise AssertionError(message)


def refused(*arguments, says, code=2, env=None):
    """Exit status, nothing on stdout, exactly one line on stderr that names the trouble."""
    status, out, err = call(*arguments, env=env)
    expect(status == code, f"{arguments}: exit {status}, not {code}; {err}")
    expect(out == "", f"{arguments}: printed {out!r}")
    expect(err.count("\n") == 1 and err.startswith("tensorgrad: "), f"{arguments}: not one line: {err!r}")
    for part in [says] if isinstance(says, str) else says:
        expect(part in err, f"{arguments}: {err!r} does not say {part!r}")


# ---------------------------------------------------------------- what works

def test_help_and_version(_):
    status, out, err = call("--help")
    expect(status == 0 and not err, "help")
    for word in ("devices", "train", "bench", "inspect", "mlp-sin", "transformer-add", "digits-cnn", "makemore", "char-gru"):
        expect(word in out, word)
    for command in ("devices", "train", "bench", "inspect", "tune", "completion", "man"):
        status, own, err = call(command, "--help")
        expect(status == 0 and not err and own.startswith(f"tensorgrad {command}") and own != out, f"{command} --help")
    train = call("train", "--help")[1]
    expect("--save-every N" in train and "--seconds" not in train and call("train", "mlp-sin", "-h")[1] == train, "its own options alone")
    expect(max(map(len, train.splitlines())) <= 120, "lines are wrapped")
    status, out, _ = call("--version")
    expect(status == 0 and re.fullmatch(r"tensorgrad \d+\.\d+\.\d+\n", out), out)


def options_of(command):
    return set(re.findall(r"^    (--[a-z-]+)", call(command, "--help")[1], re.M))


def test_man_and_completions(folder):
    status, page, err = call("man")
    expect(status == 0 and not err and page.startswith(".TH TENSORGRAD 1"), err)
    for option in options_of("train") - {"--help"}:
        expect(option.replace("-", "\\-") in page, f"the manual page lacks {option}")
    for shell in ("bash", "zsh", "fish"):
        status, text, err = call("completion", shell)
        expect(status == 0 and "train" in text and not err, f"{shell}: {err}")
        for option in options_of("train") | options_of("tune"):
            expect(option in text or f"-l {option[2:]} " in text, f"{shell} lacks {option}")
    script = folder / "complete.bash"
    script.write_text(call("completion", "bash")[1])
    for words, wanted in ((["t"], "train tune"), (["train", "mlp"], "mlp-sin"), (["train", "--dev"], "--device"), (["inspect", "--wg"], "--wgsl"),
                          (["train", "--device", ""], "auto cpu webgpu"), (["tune", "--save"], "")):
        array = " ".join(f"'{word}'" for word in ["tensorgrad", *words])
        done = subprocess.run(["bash", "-c", f"source {script}; COMP_WORDS=({array}); COMP_CWORD={len(words)}; _tensorgrad; "
                                             'echo "${COMPREPLY[*]}"'], capture_output=True, text=True, check=False)
        expect(done.stdout.strip() == wanted and not done.stderr, f"{words}: {done.stdout!r} {done.stderr}")
    refused("completion", "tcsh", says=["bash, zsh or fish", "tcsh"])
    refused("completion", says="bash, zsh or fish")
    refused("man", "train", says="no argument")


def test_devices(_):
    status, out, _ = call("devices")
    expect(status == 0 and out.startswith("cpu "), out)
    cpu = json.loads(call("devices", "--json")[1])
    expect(cpu["cpu"]["vectors"] in ("avx512", "avx2", "neon", "scalar") and cpu["cpu"]["cores"] >= 1, str(cpu))
    expect(cpu["webgpu"] == [] and "/no/such/library.so" in cpu["webgpu_none"], str(cpu))
    expect("webgpu  none: " in out and "/no/such/library.so" in out, out)


def test_train_json(_):
    lines = losses("mlp-sin", "--steps", 30)
    expect([line["step"] for line in lines] == list(range(1, 31)), "steps 1 to 30, the last line the last step")
    for line in lines:
        expect({"step", "loss", "lr", "ms"} <= set(line), str(line))
        expect(line["lr"] == ADAM_RATE and line["ms"] > 0, str(line))
    expect(lines[-1]["loss"] < lines[0]["loss"], "the loss falls")
    expect("max_error" in lines[-1] and "max_error" not in lines[0], "the score stands in the last line only")


def test_train_plain(_):
    status, out, err = call("train", "mlp-sin", "--steps", 100)
    expect(status == 0 and not err, err)
    expect("\r" not in out and "\033" not in out, "no terminal control in a pipe")
    expect(re.search(r"^step 1/100 ", out, re.M) and re.search(r"^step 100/100 ", out, re.M), out)


def test_transformer_prints_exact_match(_):
    lines = losses("transformer-add", "--steps", 3)
    expect(0 <= lines[-1]["exact_match"] <= 1, str(lines[-1]))
    rates = [line["lr"] for line in lines]
    expect(abs(rates[0] - (0.005 - 0.0045 / 1500)) < 1e-9, f"the first rate is one step below its peak: {rates}")
    status, out, _ = call("train", "transformer-add", "--steps", 1)
    expect(status == 0 and "held-out" in out.replace("held out", "held-out"), out)


def test_seed(_):
    one, same, other = (losses("mlp-sin", "--steps", 5, "--seed", seed) for seed in (1, 1, 2))
    expect([l["loss"] for l in one] == [l["loss"] for l in same], "one seed, one curve")
    expect([l["loss"] for l in one] != [l["loss"] for l in other], "another seed, another curve")
    expect(losses("mlp-sin", "--steps", 2, "--seed", 2**64 - 1)[-1]["step"] == 2, "the largest seed")


def test_threads_do_not_matter(_):
    curves = [[l["loss"] for l in losses("transformer-add", "--steps", 4, "--threads", n)] for n in (1, 2, 5)]
    expect(curves[0] == curves[1] == curves[2], f"bit for bit: {curves}")
    by_environment = [l["loss"] for l in losses("transformer-add", "--steps", 4, env={"TENSORGRAD_THREADS": "3"})]
    expect(by_environment == curves[0], "TENSORGRAD_THREADS")


def test_save_and_resume(folder):
    for example, steps in (("mlp-sin", 20), ("transformer-add", 4)):
        straight = [l["loss"] for l in losses(example, "--steps", 2 * steps, "--seed", 9)]
        checkpoint = folder / f"{example}.safetensors"
        first = [l["loss"] for l in losses(example, "--steps", steps, "--seed", 9, "--save", checkpoint)]
        rest = losses(example, "--steps", steps, "--resume", checkpoint)
        expect(first == straight[:steps], f"{example}: the first half")
        expect([l["step"] for l in rest] == list(range(steps + 1, 2 * steps + 1)), f"{example}: steps go on")
        expect([l["loss"] for l in rest] == straight[steps:], f"{example}: the second half, bit for bit")


def test_checkpoint_is_safetensors(folder):
    checkpoint = folder / "a.safetensors"
    losses("mlp-sin", "--steps", 2, "--save", checkpoint)
    data = checkpoint.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    ends = max(entry["data_offsets"][1] for entry in header.values())
    expect(8 + length + ends == len(data), "the data fills the file")
    status, out, _ = call("inspect", checkpoint, "--json")
    listed = json.loads(out)
    expect(status == 0 and {t["name"] for t in listed["tensors"]} == set(header), "inspect lists what is there")
    status, out, _ = call("inspect", checkpoint)
    expect(status == 0 and all(name in out for name in header), out)
    expect(list(folder.iterdir()) == [checkpoint], "no temporary file stays behind")


def test_plot(folder):
    for example in ("mlp-sin", "transformer-add"):
        path = folder / f"{example}.svg"
        losses(example, "--steps", 4, "--plot", path)
        svg = xml.dom.minidom.parse(str(path)).documentElement
        expect(svg.tagName == "svg" and svg.getElementsByTagName("path"), example)
        expect("script" not in path.read_text(), "no script")


def test_plot_of_one_step(folder):
    path = folder / "one.SVG"
    losses("transformer-add", "--steps", 1, "--plot", path)
    drawing = [element.getAttribute("d") for element in xml.dom.minidom.parse(str(path)).getElementsByTagName("path")]
    expect(len(drawing) == 1 and re.fullmatch(r"M[\d.]+ [\d.]+h0", drawing[0]), f"one point is drawn: {drawing}")
    ticks = [t.firstChild.data for t in xml.dom.minidom.parse(str(path)).getElementsByTagName("text")]
    expect("1" in ticks and "0.5" not in ticks and "1.5" not in ticks, f"steps are whole: {ticks}")
    for name in ("x.png", "x", "svg", "x.svg.gz"):
        refused("train", "mlp-sin", "--steps", "1", "--plot", folder / name, says=["--plot", ".svg", name])


def test_batch_and_rate(folder):
    usual, small, same = (losses("mlp-sin", "--steps", 3, *how) for how in ((), ("--batch", 7), ("--batch", 256)))
    expect([l["loss"] for l in usual] == [l["loss"] for l in same] != [l["loss"] for l in small], "--batch")
    for example in ("mlp-sin", "transformer-add"):
        kept = [[l["loss"] for l in losses(example, "--steps", 3, "--batch", 5, *how)] for how in ((), ("--on-device",))]
        expect(kept[0] == kept[1], f"{example}: {kept}")
    rates = [line["lr"] for line in losses("transformer-add", "--steps", 2, "--lr", 0.01)]
    for t, rate in enumerate(rates, 1):
        expect(abs(rate - (0.01 - 0.009 * t / 1500)) < 1e-9, f"the schedule's shape: {rates}")
    checkpoint = folder / "rate.safetensors"
    losses("transformer-add", "--steps", 3, "--save", checkpoint)
    again = [line["lr"] for line in losses("transformer-add", "--steps", 2, "--resume", checkpoint, "--lr", 0.01)]
    expect(again == rates, f"resumed, a schedule that was named begins: {again}")
    losses("transformer-add", "--steps", 2, "--resume", checkpoint, "--lr", 0.01, "--save", folder / "on.safetensors")
    on = [line["lr"] for line in losses("transformer-add", "--steps", 2, "--resume", folder / "on.safetensors")]
    for t, rate in enumerate(on, 3):
        expect(abs(rate - (0.01 - 0.009 * t / 1500)) < 1e-8, f"resumed again, the schedule in force is shown: {on}")
    info = json.loads(call("inspect", "mlp-sin", "--batch", 3, "--json")[1])
    expect(info["peak_bytes"] < json.loads(call("inspect", "mlp-sin", "--json")[1])["peak_bytes"], str(info))
    expect(json.loads(call("bench", "mlp-sin", "--batch", 3, "--steps", 2, "--json")[1])["steps"] == 2, "bench --batch")


def test_load_evaluates(folder):
    checkpoint = folder / "a.safetensors"
    trained = losses("mlp-sin", "--steps", 40, "--save", checkpoint)[-1]
    for how in ("--load", "--resume"):
        lines = losses("mlp-sin", "--steps", 0, how, checkpoint)
        expect(len(lines) == 1 and lines[0]["max_error"] == trained["max_error"], f"{how}: {lines}")
        expect(lines[0]["step"] == (40 if how == "--resume" else 0) and lines[0]["loss"] < 3, str(lines))
    status, out, err = call("train", "mlp-sin", "--steps", 0, "--load", checkpoint)
    expect(status == 0 and not err and "no step" in out and "largest error" in out, out + err)
    begun = losses("mlp-sin", "--steps", 2, "--load", checkpoint)
    expect([l["step"] for l in begun] == [1, 2] and begun[0]["loss"] == losses("mlp-sin", "--steps", 0, "--load", checkpoint)[0]["loss"],
           "training begins at step 1 with the file's parameters")
    fresh = losses("mlp-sin", "--steps", 0)
    expect(fresh[0]["loss"] == losses("mlp-sin", "--steps", 1)[0]["loss"], "without a file: the initial values")
    copy = folder / "copy.safetensors"
    losses("mlp-sin", "--steps", 0, "--resume", checkpoint, "--save", copy)
    expect(copy.read_bytes() == checkpoint.read_bytes(), "nothing changed")
    refused("train", "mlp-sin", "--load", checkpoint, "--resume", checkpoint, says="exclude")
    refused("train", "mlp-sin", "--load", folder / "gone", says="No such file")
    for option in (("--on-device",), ("--target-loss", "1"), ("--lr", "1"), ("--save", folder / "x", "--save-every", "1")):
        refused("train", "mlp-sin", "--steps", "0", *option, says=[option[-2] if len(option) > 2 else option[0], "--steps 0"])
    refused("train", "mlp-sin", "--save-every", "3", says="needs --save")


def test_picture(_):
    for env, dots in (({"LC_ALL": "C.UTF-8"}, True), ({"LC_ALL": "C"}, False)):
        status, out, _ = call("train", "mlp-sin", "--steps", 200, "--picture", env=env)
        expect(status == 0, "picture")
        braille = any("\u2800" < c <= "\u28ff" for c in out)
        expect(braille == dots and out.isascii() != dots, f"{env}: braille {braille}")
        expect("loss" in out and "truth" in out, "both pictures")


def on_terminal(*arguments, columns=80, **env):
    """Exit status and all that a run prints on a terminal of so many columns."""
    pid, master = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        os.environ.update({"LC_ALL": "C.UTF-8", "TERM": "xterm", **NO_GPU, **env})
        if "NO_COLOR" not in env:
            os.environ.pop("NO_COLOR", None)
        os.execv(PROGRAM, [PROGRAM, *map(str, arguments)])
    text, begun = b"", time.monotonic()
    while time.monotonic() - begun < 120:
        if not select.select([master], [], [], 0.2)[0]:
            continue
        try:
            part = os.read(master, 65536)
        except OSError:
            break
        if not part:
            break
        text += part
    _, status = os.waitpid(pid, 0)
    return status, text.decode()


def test_progress_bar_on_a_terminal(_):
    status, out = on_terminal("train", "mlp-sin", "--steps", 3000)
    expect(status == 0, f"exit {status}: {out[-300:]}")
    for word in ("\r", "steps/s", "ETA", "loss", "3000/3000", "\u2588"):
        expect(word in out, f"the bar lacks {word!r}: {out[-300:]!r}")


def test_terminals_of_all_kinds(_):
    for columns in (1, 20, 40, 60, 200):
        status, out = on_terminal("train", "mlp-sin", "--steps", 400, columns=columns)
        drawn = [part.replace("\033[K", "").rstrip("\n") for line in out.split("\r\n") for part in line.split("\r") if "\033[K" in part]
        expect(status == 0 and drawn and all(len(part) < max(columns, 2) for part in drawn), f"{columns} columns: {drawn[-1]!r}")
    for columns, most in ((40, 40), (80, 78)):
        out = on_terminal("train", "mlp-sin", "--steps", 2, "--picture", columns=columns)[1]
        plain = [re.sub("\033\\[[0-9;]*m", "", line) for line in out.split("\r\n") if "\u2502" in line]
        expect(plain and all(len(line) < most for line in plain), f"{columns} columns: {max(map(len, plain))}")
        expect("\033[36m" in out, "colours")
    out = on_terminal("train", "mlp-sin", "--steps", 2, "--picture", NO_COLOR="1")[1]
    expect(not re.search("\033\\[[0-9;]*m", out) and "\033[K" in out, "NO_COLOR: no colour, the bar stays")
    for terminal in ("dumb", ""):
        out = on_terminal("train", "mlp-sin", "--steps", 30, "--picture", TERM=terminal)[1]
        expect("\033" not in out and "step 30/30" in out, f"TERM={terminal}: plain lines")


def test_on_device(folder):
    for example, steps in (("mlp-sin", 40), ("transformer-add", 4)):
        plain, kept = (losses(example, "--steps", steps, *how) for how in ((), ("--on-device",)))
        expect([l["loss"] for l in plain] == [l["loss"] for l in kept], f"{example}: the same losses on data that is there")
        expect({k: v for k, v in plain[-1].items() if k != "ms"} == {k: v for k, v in kept[-1].items() if k != "ms"}, str(kept[-1]))
    checkpoint = folder / "on-device.safetensors"
    losses("mlp-sin", "--steps", 20, "--save", checkpoint, "--on-device")
    rest = losses("mlp-sin", "--steps", 20, "--resume", checkpoint, "--on-device")
    straight = losses("mlp-sin", "--steps", 40)
    expect([l["loss"] for l in rest] == [l["loss"] for l in straight[20:]], "resumed, with the batches of the steps resumed")
    status, out, err = call("train", "mlp-sin", "--steps", 2, "--target-loss", "1e-9", "--on-device")
    expect(status == 1 and "not below" in err and "step 4/4" in out, out + err)
    refused("bench", "mlp-sin", "--on-device", says="--on-device")


def not_finite(*arguments, says, code=1, train="mlp-sin"):
    """A rate that makes parameters of 1e30 in the first step; losses and gradients after it are not finite."""
    status, out, err = call("train", train, "--lr", "1e30", "--steps", 5, *arguments)
    expect(status == code and all(part in err for part in says), f"{arguments}: exit {status}: {out}{err}")
    return out, err


def test_not_finite(folder):
    for where in ((), ("--on-device",)):
        out, err = not_finite(*where, says=["tensorgrad: step 2: loss is inf\n"])
        expect("step 2/2" in out and "step 3" not in out and err.count("step 2") == 1, out + err)
        for json_too in ((), ("--json",)):
            out, err = not_finite("--check-finite", *where, *json_too, says=["mlp_sin.c:", "step 2: contract[", "nothing was changed"])
            expect(len(re.findall(r"loss", out)) == 1 and "nan" not in out and err.count("\n") == 1, "a step that was not made: " + out)
            expect(not json_too or json.loads(out)["step"] == 1, out)
    refused("train", "mlp-sin", "--check-finite", "--skip-non-finite", says="exclude")
    for option in ("--check-finite", "--skip-non-finite"):
        refused("train", "mlp-sin", "--steps", 0, option, says=[option, "needs steps"])


def test_skip_non_finite(folder):
    says = ["step 2: loss is inf; it was skipped", "4 of 5 steps were skipped", "the last one too"]
    kept = folder / "kept.safetensors"
    for where in ((), ("--on-device",)):
        out, err = not_finite("--skip-non-finite", "--save", kept, *where, says=says)
        expect("step 5/5" in out and err.count("\n") == 2, out + err)
        lines = [json.loads(line) for line in not_finite("--skip-non-finite", "--json", *where, says=says)[0].splitlines()]
        expect([line.get("skipped", False) for line in lines] == [False] + 4 * [True], str(lines))
        expect([line["loss"] is None for line in lines] == [False] + 4 * [True] and "max_error" in lines[-1], str(lines))
    metadata = json.loads(call("inspect", kept, "--json")[1])["metadata"]
    expect(metadata["step"] == "5" and metadata["skipped"] == "4", str(metadata))
    first = folder / "first.safetensors"
    losses("mlp-sin", "--steps", 1, "--lr", "1e30", "--save", first)
    kept_bytes, first_bytes = (data[8 + struct.unpack("<Q", data[:8])[0]:] for data in (kept.read_bytes(), first.read_bytes()))
    expect(kept_bytes == first_bytes, "parameters and optimizer are those of the first step, bit for bit")
    # what was skipped is no time to the schedule, before and after a resume
    out, _ = not_finite("--skip-non-finite", "--json", "--steps", 3, "--save", kept, says=["2 of 3"], train="transformer-add")
    rates = [json.loads(line)["lr"] for line in out.splitlines()]
    expect(rates[0] > rates[1] == rates[2], str(rates))
    status, out, err = call("train", "transformer-add", "--steps", 2, "--resume", kept, "--skip-non-finite", "--json")
    expect(status == 1 and "2 of 2 steps" in err, err)
    again = [json.loads(line) for line in out.splitlines()]
    expect([line["step"] for line in again] == [4, 5] and all(abs(line["lr"] / again[0]["lr"] - 1) < 1e-6 for line in again), out)
    # it changes nothing where all is finite
    expect([l["loss"] for l in losses("mlp-sin", "--steps", 5)] == [l["loss"] for l in losses("mlp-sin", "--steps", 5, "--skip-non-finite")],
           "finite steps are what they were")


def test_target_loss(_):
    status, _, err = call("train", "mlp-sin", "--steps", 2, "--target-loss", "1e-9")
    expect(status == 1 and "not below" in err, err)
    expect(call("train", "mlp-sin", "--steps", 2, "--target-loss", "100")[0] == 0, "reached")


def test_bench(_):
    status, out, err = call("bench", "matmul:512", "mlp-sin", "transformer-add", "--steps", 6, "--threads", 1, "--json")
    expect(status == 0, err)
    rows = {row["workload"]: row for row in map(json.loads, out.splitlines())}
    keys = {"workload", "device", "adapter", "steps", "ms_per_step", "ms_min", "dispatches", "peak_bytes", "loss_first",
            "loss_last", "gflops"}
    for row in rows.values():
        expect(keys <= set(row), str(row))
        expect(row["steps"] == 6 and 0 < row["ms_min"] <= row["ms_per_step"] and row["gflops"] > 0 and row["threads"] == 1, str(row))
        expect(row["device"] == "cpu", str(row))
    for row in (rows["mlp-sin"], rows["transformer-add"]):
        expect(row["ms_per_step_pipelined"] > 0 and row["ms_per_step_train"] > 0 and row["host_ms"] is None, str(row))
    expect(rows["matmul:512"]["dispatches"] is None and rows["matmul:512"]["loss_last"] is None, "null where not applicable")
    expect(rows["mlp-sin"]["ratio"] > 0 and rows["mlp-sin"]["ratio_min"] > 0 and rows["transformer-add"]["loss_first"] > 1, str(rows))
    status, out, _ = call("bench", "mlp-sin", "--steps", 3)
    expect(status == 0 and "mlp-sin" in out and "ms/step" in out, out)
    status, out, err = call("bench", "mlp-sin", "--steps", 2, "--device", "cpu", "--precision", "f16", "--json")
    expect(status == 0 and json.loads(out)["precision"] == "f32" and "precision f16 is not offered by cpu" in err, out + err)


def test_bench_sizes(_):
    words = ("gpt:L1,D32,H2,T8,B2,V11", "mlp:W16,N2,B64", "conv:C4,B4", "gru:H8,T4,B4")
    status, out, err = call("bench", *words, "--steps", 3, "--device", "cpu", "--threads", 1, "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    expect(status == 0 and [row["workload"] for row in rows] == list(words), out + err)
    for row in rows:
        expect(row["parameters"] > 0 and row["compile_s"] > 0 and row["kernels"] == row["dispatches"] > 0, str(row))
        expect(row["gflop"] > 0 and row["tflops"] > 0 and row["peak_bytes"] > 4 * row["parameters"] and row["loss_first"] > 0, str(row))
    width = 32
    expect(rows[0]["parameters"] == 11 * width + 8 * width + 12 * width * width + 13 * width + 2 * width, "those of a GPT")
    status, out, _ = call("bench", words[0], "--steps", 2, "--device", "cpu")
    expect(status == 0 and words[0] in out and "ms/step" in out, out)
    info = json.loads(call("inspect", words[1], "--json")[1])
    expect(info["example"] == words[1] and info["parameters"] == rows[1]["parameters"], "inspect takes sizes too")
    status, out, _ = call("bench", words[1], "--profile", "--steps", 3, "--json")
    expect(status == 0 and len(out.splitlines()) == rows[1]["kernels"], out)
    for command in ("bench", "inspect", "tune"):
        refused(command, "gpt:L4,Q8", says=["gpt:L4,Q8", "'Q8'", "L layers (4)", "V vocabulary (65)"])
    refused("bench", "mlp:W0", says=["mlp:W0", "W width (64)"])
    refused("bench", "conv:C4;B4", says=["C channels (32)", "B batch (64)"])
    refused("bench", "gpt:D30,H4", says="multiple of the heads")
    refused("train", "gpt:L4", says="gpt:L4")


def test_bench_profile(folder):
    status, out, err = call("bench", "mlp-sin", "--profile", "--steps", 200, "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    kernels = json.loads(call("inspect", "mlp-sin", "--device", "cpu", "--json")[1])["kernels"]
    expect(status == 0 and len(rows) == kernels and all(row["ms"] > 0 and row["loops"] for row in rows), out + err)
    expect(rows == sorted(rows, key=lambda row: -row["ms"]) and any(row["flops"] > 0 for row in rows), "slowest first")
    expect(all(row["bytes"] > 0 and row["kernels"] == 1 and row["best_tflops"] > 0 and row["best_gbps"] > 0 for row in rows), str(rows[0]))
    expect(abs(sum(row["share"] for row in rows) - 1) < 1e-2, "shares add up to 1")
    trace = folder / "trace.json"
    status, out, _ = call("bench", "mlp-sin", "--profile", "--steps", 2, "--trace", trace)
    expect(status == 0 and "TFLOP/s" in out and "in all" in out, out)
    events = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
    expect([event["args"]["launch"] for event in events] == list(range(kernels)), "an event for each kernel, in order")
    for one, next_one in zip(events, events[1:]):
        expect(abs(one["ts"] + one["dur"] - next_one["ts"]) < 0.01, "one after another")
    refused("bench", "mlp-sin", "--trace", trace, says="--trace needs --profile")
    refused("bench", "--profile", "matmul:8", says="one example")
    refused("bench", "--profile", "mlp-sin", "transformer-add", says="one example")


def test_inspect_json(_):
    status, out, _ = call("inspect", "transformer-add", "--json")
    info = json.loads(out)
    expect(status == 0, "exit 0")
    for key in ("parameters", "nodes", "kernels", "dispatches", "program_bytes", "peak_bytes"):
        expect(isinstance(info[key], int) and info[key] > 0, f"{key}: {info.get(key)}")
    expect(info["parameters"] == sum(count(shape) for shape in info["params"].values()), "parameters are the sum over params")
    mlp = json.loads(call("inspect", "mlp-sin", "--json")[1])
    expect(mlp["parameters"] == 64 + 64 + 64 * 64 + 64 + 64 + 1, str(mlp["parameters"]))
    again = json.loads(call("inspect", "transformer-add", "--json")[1])
    expect(again == info, "the same twice")


def count(shape):
    product = 1
    for dim in shape:
        product *= dim
    return product


def test_inspect_texts(folder):
    texts = {}
    for flag in ("--ir", "--kernels", "--plan", "--dot", "--c", "--wgsl"):
        status, out, err = call("inspect", "mlp-sin", flag)
        expect(status == 0 and len(out) > 100, f"{flag}: {err}")
        texts[flag] = out
    expect(len(set(texts.values())) == 6, "six different texts")
    expect("@compute" in texts["--wgsl"] and "fn main" in texts["--wgsl"], texts["--wgsl"][:200])
    expect(texts["--dot"].lstrip().startswith("digraph"), texts["--dot"][:40])
    source = folder / "mlp.c"
    source.write_text(texts["--c"])
    done = subprocess.run(["cc", "-std=c11", "-c", source, "-o", folder / "mlp.o"], capture_output=True, check=False)
    expect(done.returncode == 0, done.stderr.decode()[:2000])
    status, out, _ = call("inspect", "mlp-sin")
    expect(status == 0 and "parameters" in out and "peak bytes" in out, out)
    expect(json.loads(call("inspect", "mlp-sin", "--json", "--ir")[1])["ir"] == texts["--ir"], "--json carries the text")


# ---------------------------------------------------------------- on a WebGPU adapter

def adapters():
    return json.loads(call("devices", "--json", env=GPU)[1])["webgpu"]


def webgpu_devices(_):
    found = adapters()
    expect(found, "there is an adapter")
    keys = {"index", "name", "vendor", "architecture", "backend", "type", "max_buffer_bytes", "max_binding_bytes",
            "max_storage_buffers", "max_workgroup_bytes", "max_workgroup_invocations", "max_workgroups", "subgroup_min",
            "subgroup_max", "timestamps", "subgroups", "f16", "subgroup_matrices", "executes"}
    for i, adapter in enumerate(found):
        expect(set(adapter) == keys and adapter["index"] == i and adapter["max_storage_buffers"] >= 8, str(adapter))
    status, out, err = call("devices", env=GPU)
    expect(status == 0 and not err and all(adapter["name"] in out for adapter in found), out + err)


def webgpu_check(_):
    status, out, err = call("devices", "--check", "--adapter", "#0", "--json", env=GPU)
    expect(status == 0 and not err, f"exit {status}: {out[:1500]} {err}")
    reports = json.loads(out)["adapters"]
    expect(len(reports) == 1 and reports[0]["index"] == 0 and reports[0]["name"] == adapters()[0]["name"], out[:300])
    expect(reports[0]["agree"] > 200 and reports[0]["differ"] == 0 and reports[0]["error"] is None, out)
    refused("devices", "--check", "--adapter", "no such thing", says=["no such thing"], env=GPU)


def webgpu_without_a_driver(_):
    """Dawn offers its Null backend where there is no driver: it takes every command and executes nothing."""
    none = {**GPU, "VK_DRIVER_FILES": "/none", "VK_ICD_FILENAMES": "/none"}
    listed = json.loads(call("devices", "--json", env=none)[1])
    expect([a["executes"] for a in listed["webgpu"]] == [False] and listed["webgpu"][0]["backend"] == "null", str(listed))
    status, out, _ = call("devices", env=none)
    expect(status == 0 and "executes nothing" in out, out)
    for command in (("train", "mlp-sin", "--steps", 2), ("bench", "mlp-sin"), ("tune", "matmul:8")):
        device = () if command[0] == "tune" else ("--device", "webgpu")
        status, out, err = call(*command, *device, env=none)
        expect(status == 2 and out == "" and "executes anything" in err.splitlines()[-1], f"{command}: exit {status}: {out} {err}")
    status, out, err = call("devices", "--check", env=none)
    expect(status == 2 and "executes anything" in err, f"exit {status}: {out} {err}")
    with_gpu = [l["loss"] for l in losses("mlp-sin", "--steps", 2, "--device", "auto", env=none)]
    expect(with_gpu == [l["loss"] for l in losses("mlp-sin", "--steps", 2, "--device", "cpu")], f"auto is the CPU: {with_gpu}")
    status, out, err = call("bench", "matmul:8", "--steps", 1, "--adapter", "null", "--json", env=none)
    expect(status == 0 and "Null backend" in out, f"named, it is taken: exit {status}: {out} {err}")


def webgpu_train(folder):
    arguments = ("mlp-sin", "--steps", 8, "--seed", 9)
    cpu = [l["loss"] for l in losses(*arguments)]
    gpu, again = ([l["loss"] for l in losses(*arguments, "--device", "webgpu", env=GPU)] for _ in range(2))
    expect(gpu == again, "bit for bit, every time")
    expect(all(abs(a - b) <= 1e-4 * b for a, b in zip(gpu, cpu)), f"as on the CPU: {gpu} {cpu}")
    checkpoint = folder / "half.safetensors"
    first = losses("mlp-sin", "--steps", 4, "--seed", 9, "--adapter", "#0", "--save", checkpoint, env=GPU)
    rest = [l["loss"] for l in losses("mlp-sin", "--steps", 4, "--adapter", "#0", "--resume", checkpoint, env=GPU)]
    moved = [l["loss"] for l in losses("mlp-sin", "--steps", 4, "--resume", checkpoint)]
    expect([l["loss"] for l in first] + rest == gpu, "resumed, bit for bit")
    expect(all(abs(a - b) <= 1e-4 * b for a, b in zip(moved, cpu[4:])), "a checkpoint moves to the CPU")
    status, out, err = call("train", "mlp-sin", "--steps", 2, "--device", "webgpu", "--picture", env={**GPU, "LC_ALL": "C"})
    expect(status == 0 and f"on webgpu ({adapters()[0]['name']}" in out and "truth" in out, out + err)


def webgpu_adapters_by_name(_):
    name = adapters()[0]["name"]
    for asked in (name, name[1:5].upper(), adapters()[0]["backend"]):
        expect(call("inspect", "mlp-sin", "--adapter", asked, env=GPU)[0] == 0, asked)
        expect(call("inspect", "mlp-sin", "--device", "webgpu", env={**GPU, "TENSORGRAD_ADAPTER": asked})[0] == 0, asked)
    for asked in ("#99", "no such thing"):
        refused("train", "mlp-sin", "--steps", 1, "--adapter", asked, says=[asked, name], env=GPU)


def webgpu_bench(_):
    status, out, err = call("bench", "matmul:96", "mlp-sin", "--steps", 3, "--device", "webgpu", "--json", env=GPU)
    expect(status == 0, err)
    for row in map(json.loads, out.splitlines()):
        expect(row["device"] == "webgpu" and row["adapter"] == adapters()[0]["name"] and row["threads"] is None, str(row))
        expect(row["dispatches"] > 0 and row["peak_bytes"] > 0 and row["ms_min"] > 0 and row["gflops"] > 0, str(row))
        expect(row["workload"] != "mlp-sin" or row["ms_per_step_train"] > 0 < row["host_ms"], str(row))


def webgpu_tune(folder):
    table = folder / "deep" / "tuning.txt"
    env = {**GPU, "TENSORGRAD_TUNING": str(table)}
    command = ("tune", "matmul:20x30x40", "--seconds", "0.5")
    status, out, err = call(*command, "--json", "--dry-run", env=env)
    expect(status == 0 and not table.exists(), f"a dry run stores nothing: {out} {err}")
    row = json.loads(out)
    expect(set(row) == {"workload", "what", "usual", "best", "usual_us", "best_us", "gain", "choices", "tried", "wrong", "faster"}, out)
    expect(row["workload"] == "matmul:20x30x40" and row["what"].startswith("contract 1x20x30x40 "), out)
    expect(row["choices"] > 10 and row["wrong"] == 0 and row["usual_us"] > 0 and (row["gain"] >= 1.05) == row["faster"], out)
    status, out, err = call(*command, "--adapter", "#0", env=env)
    expect(status == 0 and "contract 1x20x30x40" in out and table.read_text().startswith("tensorgrad tuning 1\n"), out + err)
    # a schedule that somebody else found
    adapter = call("bench", "matmul:64", "--steps", 1, "--json", "--device", "webgpu", env=env)
    expect(adapter[0] == 0 and json.loads(adapter[1])["tuned"] == 0 and not adapter[2], str(adapter))
    table.write_text("garbage")
    for tried in (("bench", "matmul:64", "--steps", 1, "--device", "webgpu"), ("train", "mlp-sin", "--steps", 1, "--device", "webgpu")):
        status, _, err = call(*tried, env=env)
        expect(status == 0 and err.count("\n") == 1 and str(table) in err and "ignored" in err, f"one warning: {err}")
    status, out, err = call(*command, env=env)
    expect(status == 2 and str(table) in err and table.read_text() == "garbage", "left alone: " + err)
    status, out, err = call(*command, env={**env, "TENSORGRAD_TUNING": "off"})
    expect(status == 2 and "TENSORGRAD_TUNING" in err, err)
    refused("tune", "matmul:8", "--adapter", "no such thing", "--json", says=["no such thing"], env=env)


def webgpu_inspect(_):
    status, out, err = call("inspect", "mlp-sin", "--device", "webgpu", "--json", "--wgsl", env=GPU)
    info = json.loads(out)
    expect(status == 0 and info["device"].startswith("webgpu ("), out[:300] + err)
    expect(0 < info["dispatches"] == info["wgsl"].count("@compute") < info["kernels"], out[:300])


# ---------------------------------------------------------------- what is refused

def test_commands_refused(_):
    refused(says="no command")
    refused("fly", says=["unknown command", "fly", "train"])
    refused("--fly", says=["unknown option", "--fly"])
    refused("devices", "extra", says="extra")


def test_examples_refused(_):
    for command in ("train", "inspect", "bench"):
        refused(command, "mlp-cos", says=["mlp-cos", "mlp-sin", "transformer-add"])
    refused("train", says="one example")
    refused("train", "mlp-sin", "mlp-sin", says="one example")
    refused("inspect", says="one example")
    refused("bench", says="workload")
    refused("bench", *["mlp-sin"] * 17, says="too many")
    refused("tune", says="workload")
    refused("tune", "mlp-cos", says=["mlp-cos", "mlp-sin", "transformer-add"])
    for text in ("matmul:", "matmul:0", "matmul:8x", "matmul:8x9", "matmul:8x9x", "matmul:8x9x10x", "matmul:8x9x10x11", "matmul:x8x9",
                 "matmul:8x0x9", "matmul:8x9x16385", "matmul:8X9X10", "matmul:8x 9x10", "matmul:999999999999999999999"):
        refused("tune", text, says=[text, "MxNxK"])
    refused("bench", "matmul:8x9x10", says=["matmul:8x9x10", "whole number"])
    for text in ("matmul:", "matmul:0", "matmul:-3", "matmul:x", "matmul:12x", "matmul:999999999999999999999", "matmul: 4"):
        refused("bench", text, says=[text, "whole number"])


def test_missing_data_refused(folder):
    for example, file in (("digits-cnn", "train-images-idx3-ubyte"), ("makemore", "names.txt"), ("char-gru", "novel.txt")):
        for command in (["train"], ["bench"], ["bench", "--profile"]):
            refused(*command, example, "--data", folder, says=[example, str(folder / file), "No such file", "scripts/get-data"])
        refused("train", example, env={"TENSORGRAD_DATA": str(folder / "none")}, says=[str(folder / "none" / file)])
        refused("train", example, env={"XDG_DATA_HOME": str(folder)}, says=[str(folder / "tensorgrad" / file)])
        expect(call("inspect", example)[0] == 0, f"inspect {example} needs no data")
    refused("train", "makemore", "--data", "", says=["--data", "folder"])
    refused("train", "makemore", "--data", "x" * 2000, says="too long")


def test_wrong_data_refused(folder):
    images, labels = folder / "train-images-idx3-ubyte", folder / "train-labels-idx1-ubyte"
    header = struct.pack(">4i", 0x803, 100, 28, 28)
    for pixels, digits in ((b"", b""), (header, b""), (header + bytes(78400), struct.pack(">2i", 0x801, 100) + bytes([10]) * 100),
                           (header + bytes(78399), struct.pack(">2i", 0x801, 100) + bytes(100))):
        images.write_bytes(pixels)
        labels.write_bytes(digits)
        refused("train", "digits-cnn", "--data", folder, says=["digits-cnn", "not those of MNIST"])
    for text in (b"", b"anna", b"anna\nbob\n", b"Anna\n" * 20, b"anna\0\n" * 20, b"\n" * 20 + b"x"):
        (folder / "names.txt").write_bytes(text)
        refused("train", "makemore", "--data", folder, says=["makemore", "names.txt"])
    for text in (b"", b"Call me Ishmael.\n", b"\r\n" * 200000, "\u2014".encode() * 200000):
        (folder / "novel.txt").write_bytes(text)
        refused("train", "char-gru", "--data", folder, says=["char-gru", "novel.txt"])
    (folder / "names.txt").write_bytes(b"anna\nbob\n" * 10)
    status, out, err = call("train", "makemore", "--data", folder, "--steps", 2)
    expect(status == 0 and "made up:" in out, f"the smallest list of names trains: {err}")


def test_options_refused(_):
    refused("train", "mlp-sin", "--stepz", "3", says=["unknown option", "--stepz"])
    refused("train", "mlp-sin", "-x", says=["unknown option", "-x"])
    refused("train", "mlp-sin", "--ir", says=["unknown option", "--ir"])
    refused("devices", "--steps", "3", says=["unknown option", "--steps"])
    for option in ("--steps", "--device", "--seed", "--plan"):
        refused("tune", "matmul:8", option, "1", says=["unknown option", option])
    refused("train", "mlp-sin", "--dry-run", says=["unknown option", "--dry-run"])
    for text in ("x", "0", "-1", "nan"):
        refused("tune", "matmul:8", "--seconds", text, says=["--seconds", "above 0"])
    refused("train", "mlp-sin", "--precision", "f64", says=["--precision", "f32 or f16", "f64"])
    for option in ("--steps", "--seed", "--threads", "--device", "--adapter", "--precision", "--save", "--resume", "--plot", "--target-loss",
                   "--data", "--load", "--save-every", "--lr", "--batch"):
        refused("train", "mlp-sin", option, says=[option, "needs a value"])
    refused("train", "mlp-sin", "--step", "3", says=["unknown option '--step'", "did you mean --steps?"])
    refused("train", "mlp-sin", "--adaptor=x", says="did you mean --adapter?")
    refused("bench", "mlp-sin", "--save", "x", says=["unknown option '--save'", "bench --help"])
    for text in ("x", "0", "-1", "nan", "inf"):
        refused("train", "mlp-sin", "--lr", text, says=["--lr", "above 0"])
    refused("train", "mlp-sin", "--json=1", says="takes no value")
    refused("train", "mlp-sin", "--save", "", says=["--save", "file name"])
    refused("train", "mlp-sin", "--json", "--picture", says="exclude")


def test_numbers_refused(_):
    for option in ("--steps", "--threads", "--batch"):
        if option == "--steps":
            refused("bench", "mlp-sin", option, "0", says=[option, "at least 1"])
        else:
            refused("train", "mlp-sin", option, "0", says=[option, "at least 1"])
        for text in ("ten", "-1", "1.5", "1e3", "", " 5", "5 ", "0x10", "+5"):
            refused("train", "mlp-sin", option, text, says=[option, "whole number"])
        for text in ("99999999999999999999999", "9223372036854775807", "1000000001"):
            refused("train", "mlp-sin", option, text, says=[option, "too large"])
    refused("train", "mlp-sin", "--seed", "-1", says=["--seed", "whole number"])
    refused("train", "mlp-sin", "--seed", "18446744073709551616", says=["--seed", "too large"])
    for text in ("x", "0", "-1", "nan", "inf", "1e999"):
        refused("train", "mlp-sin", "--target-loss", text, says=["--target-loss", "above 0"])
    expect(call("train", "mlp-sin", "--steps=2")[0] == 0, "--steps=2 is fine")


def test_devices_refused(_):
    for workload in (("train", "mlp-sin"), ("bench", "mlp-sin"), ("bench", "matmul:8"), ("inspect", "mlp-sin")):
        refused(*workload, "--device", "webgpu", says=["webgpu", "/no/such/library.so"])
        refused(*workload, "--adapter", "quick", says=["webgpu", "/no/such/library.so"])
        refused(*workload, "--adapter", "quick", "--device", "cpu", says="--adapter")
    refused("train", "mlp-sin", "--adapter", "", says=["--adapter", "needs a name"])
    refused("devices", "--adapter", "quick", says="--check")
    refused("devices", "--check", says=["no WebGPU adapter", "/no/such/library.so"])
    refused("tune", "matmul:8", says=["webgpu", "/no/such/library.so"])
    refused("tune", "mlp-sin", "--json", "--adapter", "quick", says=["webgpu", "/no/such/library.so"])
    refused("train", "mlp-sin", "--check", says=["unknown option", "--check"])
    refused("train", "mlp-sin", "--device", "gpu", says=["auto, cpu or webgpu", "gpu"])
    expect(call("train", "mlp-sin", "--steps", 1, "--device", "auto")[0] == 0, "auto")
    expect(call("train", "mlp-sin", "--steps", 1, "--device", "cpu")[0] == 0, "cpu")


def test_files_refused(folder):
    gone = folder / "gone.safetensors"
    refused("train", "mlp-sin", "--resume", gone, says=[str(gone), "No such file"])
    refused("train", "mlp-sin", "--resume", folder, says=str(folder))
    refused("inspect", gone, says=[str(gone), "No such file"])
    refused("inspect", folder, says=str(folder))
    for option in ("--save", "--plot"):
        refused("train", "mlp-sin", "--steps", "1", option, folder / "none/x.svg", says=[option, "No such file"])
        (folder / "folder.svg").mkdir(exist_ok=True)
        refused("train", "mlp-sin", "--steps", "1", option, folder / "folder.svg", says=[option, "not a regular file"])
    refused("train", "mlp-sin", "--steps", "1", "--save", "/dev/full", says=["--save", "not a regular file"])
    checkpoint = folder / "mlp.safetensors"
    losses("mlp-sin", "--steps", 1, "--save", checkpoint)
    refused("train", "transformer-add", "--steps", "1", "--resume", checkpoint, says="")
    refused("inspect", checkpoint, "--ir", says=["--ir", "checkpoint"])


def test_broken_files_refused(folder):
    good = folder / "good.safetensors"
    losses("mlp-sin", "--steps", 1, "--save", good)
    data = good.read_bytes()
    broken = folder / "broken.safetensors"
    cases = {"empty": b"", "short": data[:5], "cut in the header": data[:40], "cut in the data": data[:-3], "longer": data + b"x",
             "text": b"this is not a checkpoint, it only looks at you\n", "length": struct.pack("<Q", 2**63) + data[8:],
             "json": data[:8] + b"[" + data[9:], "control": data[:8] + b"{\"\x1b[2J" + data[14:]}
    for name, bytes_ in cases.items():
        broken.write_bytes(bytes_)
        for arguments in (("inspect", broken), ("train", "mlp-sin", "--steps", "1", "--resume", broken)):
            status, out, err = call(*arguments)
            expect(status == 2 and not out and err.count("\n") == 1, f"{name} {arguments[0]}: exit {status}, {out!r}, {err!r}")
            expect("\x1b" not in err, "no control character reaches the terminal")


def test_steps_over_the_end_refused(folder):
    checkpoint = folder / "one.safetensors"
    losses("mlp-sin", "--steps", 1, "--save", checkpoint)
    expect(losses("mlp-sin", "--steps", 1, "--resume", checkpoint)[0]["step"] == 2, "goes on at 2")


def limit_file_size(size):
    """The program itself sees to it that SIGXFSZ does not end it in the middle of a file."""
    def apply():
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    return apply


def test_full_disk_keeps_the_old_file(folder):
    old = folder / "old.safetensors"
    losses("mlp-sin", "--steps", 1, "--save", old)
    before = old.read_bytes()
    status, _, err = call("train", "mlp-sin", "--steps", 2, "--save", old, preexec=limit_file_size(2048))
    expect(status == 1 and err.count("\n") == 1 and str(old) in err, f"exit {status}: {err}")
    expect(old.read_bytes() == before and list(folder.iterdir()) == [old], "the old file as it was, nothing beside it")
    plot = folder / "old.svg"
    plot.write_text("old")
    status, _, err = call("train", "mlp-sin", "--steps", 2, "--plot", plot, preexec=limit_file_size(64))
    expect(status == 1 and str(plot) in err and plot.read_text() == "old", f"exit {status}: {err}")
    expect(sorted(folder.iterdir()) == [old, plot], "nothing beside them")


def test_full_output(_):
    for arguments in (("train", "mlp-sin", "--steps", "50", "--json"), ("--help",), ("inspect", "mlp-sin", "--json")):
        with open("/dev/full", "w", encoding="ascii") as full:
            status, _, err = call(*arguments, stdout=full)
        expect(status == 1 and "cannot write the output" in err, f"{arguments}: exit {status}: {err}")


def mind_signals():
    """Whoever runs these tests may ignore some (nohup, a shell's job in the background), and children would."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def training(*arguments, **options):
    """A run without an end, after its first line."""
    options.setdefault("preexec_fn", mind_signals)
    process = subprocess.Popen([PROGRAM, "train", "mlp-sin", "--steps", "100000000", "--json", *map(str, arguments)], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, env={**os.environ, **NO_GPU}, **options)
    process.stdout.readline()
    return process


def test_interrupt_saves(folder):
    for how in ((), ("--on-device",)):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            checkpoint = folder / f"{number}{len(how)}.safetensors"
            process = training("--save", checkpoint, *how)
            process.send_signal(number)
            out, err = process.communicate(timeout=60)
            expect(process.returncode == 1 and f"interrupted after step" in err.decode() and number.name in err.decode(),
                   f"{number.name}: exit {process.returncode}: {err!r}")
            last = json.loads(out.splitlines()[-1])
            expect(losses("mlp-sin", "--steps", 1, "--resume", checkpoint)[0]["step"] == last["step"] + 1, f"{number.name}: saved where it stopped")


def test_a_reader_that_goes_away(folder):
    checkpoint = folder / "read.safetensors"
    process = training("--save", checkpoint)
    process.stdout.close()
    err = process.stderr.read().decode()
    expect(process.wait(timeout=60) == 1 and "interrupted after step" in err and "SIGPIPE" in err and err.count("\n") == 1, err)
    expect(losses("mlp-sin", "--steps", 1, "--resume", checkpoint)[0]["step"] > 1, "saved")


def test_ignored_signals_stay_ignored(folder):
    checkpoint = folder / "nohup.safetensors"
    process = training("--save", checkpoint, preexec_fn=lambda: (mind_signals(), signal.signal(signal.SIGHUP, signal.SIG_IGN)))
    process.send_signal(signal.SIGHUP)
    for _ in range(50):
        expect(process.stdout.readline(), "goes on after SIGHUP under nohup")
    process.send_signal(signal.SIGTERM)
    err = process.communicate(timeout=60)[1].decode()
    expect("SIGTERM" in err, err)


def test_save_every(folder):
    checkpoint = folder / "often.safetensors"
    for how in ((), ("--on-device",)):
        process = training("--save", checkpoint, "--save-every", 50, *how)
        while not checkpoint.exists():
            expect(process.stdout.readline(), "still running")
        process.kill()
        process.communicate(timeout=60)
        step = losses("mlp-sin", "--steps", 1, "--resume", checkpoint)[0]["step"]
        expect(step > 1 and (step - 1) % 50 == 0, f"{how}: saved after step {step - 1}")
        straight = losses("mlp-sin", "--steps", step)[-1]["loss"]
        expect(losses("mlp-sin", "--steps", 1, "--resume", checkpoint)[0]["loss"] == straight, f"{how}: the same as without stops")
        checkpoint.unlink()
        for left in folder.iterdir():
            left.unlink()
    full = folder / "full.safetensors"
    status, out, err = call("train", "mlp-sin", "--steps", 4, "--save", full, "--save-every", 2, "--json", preexec=limit_file_size(64))
    expect(status == 1 and "step 2: " in err and out.count("\n") == 4 and not list(folder.iterdir()), f"a full disk ends no run: {err}")


def test_saving_keeps_links_and_modes(folder):
    real, link, far = folder / "real.safetensors", folder / "link.safetensors", folder / "far"
    losses("mlp-sin", "--steps", 1, "--save", real)
    real.chmod(0o640)
    far.mkdir()
    link.symlink_to(real.name)
    (far / "chain").symlink_to(link)
    before = real.read_bytes()
    losses("mlp-sin", "--steps", 2, "--save", far / "chain")
    expect(link.is_symlink() and (far / "chain").is_symlink() and real.read_bytes() != before, "written where the links lead")
    expect(real.stat().st_mode & 0o7777 == 0o640, oct(real.stat().st_mode))
    dangling = folder / "dangling"
    dangling.symlink_to("far/new.safetensors")
    losses("mlp-sin", "--steps", 1, "--save", dangling)
    expect(dangling.is_symlink() and (far / "new.safetensors").is_file(), "a link to what is not there yet")
    (folder / "round").symlink_to("round")
    refused("train", "mlp-sin", "--steps", "1", "--save", folder / "round", says=["--save", "round"])
    (folder / "nowhere").symlink_to("gone/x")
    refused("train", "mlp-sin", "--steps", "1", "--save", folder / "nowhere", says=["--save", "No such file"])
    plot = folder / "plot.svg"
    plot.write_text("old")
    plot.chmod(0o600)
    losses("mlp-sin", "--steps", 1, "--plot", plot)
    expect(plot.stat().st_mode & 0o7777 == 0o600 and "<svg" in plot.read_text(), "plots too")
    left = sorted(p.name for p in [*folder.iterdir(), *far.iterdir()] if "tmp" in p.name)
    expect(not left, str(left))


def run_test(name, function):
    global passed
    with tempfile.TemporaryDirectory() as folder:
        try:
            function(pathlib.Path(folder))
            passed += 1
            print(f"ok {name}", flush=True)
        except Exception as error:  # a test must not end the others
            failed.append(name)
            print(f"FAILED {name}: {type(error).__name__}: {error}", flush=True)


def main():
    for name, function in list(globals().items()):
        if name.startswith("test_") and not ONLY_WEBGPU:
            run_test(name, function)
        if not name.startswith("webgpu_"):
            continue
        if LIBRARY:
            run_test(name, function)
        elif os.environ.get("TENSORGRAD_TEST_WEBGPU") == "required":
            failed.append(name)
            print(f"FAILED {name}: TENSORGRAD_WEBGPU_LIB names no library")
        else:
            print(f"skipped {name}: TENSORGRAD_WEBGPU_LIB names no library")
    print(f"{passed} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
