#!/usr/bin/env python3
"""Runs every check of the project and ends with one line: N passed, N failed.

usage: scripts/test.py [--jobs N] [STAGE...]        stages: see STAGES below; none means all.
Counts test cases: cmocka's own numbers for the suites, one for each check of the scripts. Everything is built under
build/test; the noise goes to build/test/logs. A check that cannot run says why and counts as failed, except those
marked optional, which print "skipped: reason".
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import platform
import re
import resource
import shutil
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/test"
LOGS = BUILD / "logs"
CLANG = shutil.which("clang-19") or shutil.which("clang")
CLANGXX = shutil.which("clang++-19") or shutil.which("clang++")

SANITIZER_ENVIRONMENT = {
    "ASAN_OPTIONS": "detect_leaks=1:allocator_may_return_null=1:strict_string_checks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": "halt_on_error=1",
}


class Tally:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.failures = []
        self.lock = threading.Lock()

    def ok(self, count=1):
        with self.lock:
            self.passed += count

    def bad(self, what, count=1):
        with self.lock:
            self.failed += count
            self.failures.append(what)
        print(f"    FAILED {what}", flush=True)

    def skip(self, what):
        with self.lock:
            self.skipped += 1
        print(f"    skipped: {what}", flush=True)


tally = Tally()
jobs = 2
built = {}


def run(command, log, timeout=1800, env=None, cwd=ROOT, stdin=subprocess.DEVNULL):
    """Appends the command and its output to the log; returns (exit status, output)."""
    LOGS.mkdir(parents=True, exist_ok=True)
    command = [str(part) for part in command]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TENSORGRAD_")}
    # a WebGPU library of the user's must not turn a test of the CPU into one of a GPU, nor a table of theirs change its kernels
    environment = {**kept, "XDG_DATA_HOME": str(BUILD / "no-data"), "TENSORGRAD_TUNING": "off", **SANITIZER_ENVIRONMENT, **(env or {})}
    try:
        done = subprocess.run(command, cwd=cwd, env=environment, stdin=stdin, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=timeout, check=False)
        status, output = done.returncode, done.stdout.decode("utf-8", "replace")
    except subprocess.TimeoutExpired as expired:
        status, output = 124, (expired.stdout or b"").decode("utf-8", "replace") + f"\ntimed out after {timeout} s\n"
    except OSError as error:
        status, output = 127, f"{error}\n"
    with open(LOGS / f"{log}.log", "a", encoding="utf-8") as file:
        file.write(f"$ {' '.join(command)}\n{output}\n[exit {status}]\n\n")
    return status, output


def check(name, command, log, **options):
    """One test case: the command exits 0."""
    status, output = run(command, log, **options)
    if status == 0:
        tally.ok()
        return True
    tally.bad(f"{name} (exit {status}; log: build/test/logs/{log}.log)")
    lines = output.rstrip().split("\n")
    telling = [line for line in lines if re.search(r"\berror\b|undefined reference|warning:|FAILED", line)][:10]
    for line in telling or lines[-15:]:
        print(f"      {line}", flush=True)
    return False


def together(*bodies):
    """At the same time, as many as there are jobs: for bodies that keep one core busy each. Each writes logs of its own."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for each in [pool.submit(body) for body in bodies]:
            each.result()


def processor_time():
    """Of every process that ended so far: what a stage costs, however busy the machine is."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def missing(*tools):
    return [tool for tool in tools if not tool or not shutil.which(tool)]


def build(name, cc, *options, targets=()):
    """Configures and builds build/test/NAME once; None when that failed (counted)."""
    if name in built:
        return built[name]
    folder = BUILD / name
    configure = ["cmake", "-S", ROOT, "-B", folder, f"-DCMAKE_C_COMPILER={cc}", "-DTENSORGRAD_WERROR=ON", *options]
    good = check(f"configure {name}", configure, name)
    compile_command = ["cmake", "--build", folder, "-j", str(jobs)]
    if targets:
        compile_command += ["--target", *targets]
    good = good and check(f"build {name}", compile_command, name)
    built[name] = folder if good else None
    return built[name]


# Minutes under clang's sanitizers, which gcc's run in a third of the time; what they look for does not depend on the compiler.
LONG_SUITES = "^test_(alloc_failure|webgpu_faults|contract|wgsl_contract|ops|vm)$"


def ctest(folder, log, select=None, parallel=None, env=None, without=None):
    """Runs the suites of a build, those that need a WebGPU device only when selected, and adds up what cmocka says."""
    command = ["ctest", "--test-dir", folder, "--verbose", "-j", str(parallel or jobs)]
    command += ["-R", select] if select else ["-LE", "webgpu"]
    command += ["-E", without] if without else []
    status, output = run(command, log, timeout=3600, env=env)
    if status not in (0, 8): # 8: suites failed, which are counted below
        tally.bad(f"{log}: ctest ended with {status} (log: build/test/logs/{log}.log)")
    names, counts, verdict = {}, collections.defaultdict(lambda: [0, 0, 0]), {}
    for line in output.split("\n"):
        match = re.match(r"\s*\d+/\d+ Test\s+#(\d+): (\S+) \.*\s*(\**\s*\S.*?)\s+[\d.]+ sec", line)
        if match:
            names[match.group(1)] = match.group(2)
            verdict[match.group(1)] = match.group(3).strip("* ")
        match = re.match(r"(\d+): \[  (PASSED|FAILED|SKIPPED)\s+\] (\d+) test\(s\)", line)
        if match:
            counts[match.group(1)][("PASSED", "FAILED", "SKIPPED").index(match.group(2))] += int(match.group(3))
    if not verdict:
        tally.bad(f"{log}: ctest ran no suite (log: build/test/logs/{log}.log)")
    for number, name in sorted(names.items(), key=lambda item: int(item[0])):
        passed, failed, skipped = counts[number]
        tally.ok(passed)
        for _ in range(skipped):
            tally.skip(f"a case of {name} (log: build/test/logs/{log}.log)")
        if failed:
            tally.bad(f"{name} ({log}: {failed} cases; log: build/test/logs/{log}.log)", failed)
        elif verdict[number] == "Skipped":
            tally.skip(f"{name} (log: build/test/logs/{log}.log)")
        elif verdict[number] != "Passed":
            tally.bad(f"{name} ({log}: {verdict[number]}; log: build/test/logs/{log}.log)")
        elif passed == 0:
            tally.bad(f"{name} ({log}: ran no case)")


# ---------------------------------------------------------------- stages

def stage_source():
    """Include direction, forbidden calls, opening comments, names on both sides, pages of all functions; the shell scripts parse."""
    for rule in ("includes", "calls", "opening", "names", "documented"):
        check(f"source rule: {rule}", [sys.executable, "scripts/check_source.py", rule], "source")
    for script in sorted(ROOT.glob("scripts/*.sh")) + [ROOT / ".ci/run"]:
        check(f"bash -n {script.name}", ["bash", "-n", script], "source")
    check("docs/ops.md is what ops.def gives", [sys.executable, "scripts/make_ops_page.py", "--check", "docs/ops.md"],
          "source")


def stage_gcc():
    """gcc, release: every suite. Goes on in the folder that make demo began."""
    folder = gcc_release()
    if folder:
        ctest(folder, "gcc")


def clang_release():
    """The library is a shared one: that of stage install."""
    if missing(CLANG):
        tally.bad("clang is not installed")
        return None
    return build("clang", CLANG, "-DTENSORGRAD_BUILD_TESTS=ON", "-DBUILD_SHARED_LIBS=ON", "-DCMAKE_INSTALL_PREFIX=/usr")


def stage_clang():
    """clang, release: every suite but two that count allocations and calls, whatever the compiler."""
    folder = clang_release()
    if folder:
        ctest(folder, "clang", without="^test_(alloc_failure|webgpu_faults)$")


def stage_gcc_sanitize():
    """gcc with ASan and UBSan: every suite."""
    folder = build("gcc-sanitize", "gcc", "-DTENSORGRAD_BUILD_TESTS=ON", "-DTENSORGRAD_SANITIZE=address,undefined")
    if folder:
        ctest(folder, "gcc-sanitize")


def clang_sanitize():
    """With the fuzzers, which need the same library."""
    if missing(CLANG):
        tally.bad("clang is not installed")
        return None
    return build("clang-sanitize", CLANG, "-DTENSORGRAD_BUILD_TESTS=ON", "-DTENSORGRAD_BUILD_FUZZERS=ON",
                 "-DTENSORGRAD_BUILD_EXAMPLES=OFF", "-DTENSORGRAD_SANITIZE=address,undefined")


def stage_clang_sanitize():
    """clang with ASan and UBSan: every suite but those that take minutes, which gcc's sanitizers run."""
    folder = clang_sanitize()
    if folder:
        ctest(folder, "clang-sanitize", without=LONG_SUITES)


def stage_threads():
    """TSan on the suites that use the pool, on threads that share a GPU, and on the two examples with more threads than cores."""
    folder = build("tsan", "gcc", "-DTENSORGRAD_BUILD_TESTS=ON", "-DTENSORGRAD_SANITIZE=thread", targets=["test_base", "test_webgpu_faults", "tensorgrad_cli"])
    if not folder:
        return
    ctest(folder, "tsan", select="^test_base$", parallel=1)
    check("TSan: threads that share a GPU", [folder / "test_webgpu_faults", "threads"], "tsan")
    for example, steps in (("mlp-sin", 30), ("transformer-add", 3)):
        check(f"TSan: train {example} on 4 threads",
              [folder / "tensorgrad", "train", example, "--steps", steps, "--threads", 4, "--json"], "tsan")


def command_line(name, program, *options, env=None):
    status, output = run([sys.executable, "tests/test_cli.py", program, *options], f"cli-{name}", env=env)
    match = re.search(r"^(\d+) passed, (\d+) failed$", output, re.M)
    if not match:
        return tally.bad(f"cli ({name}): no result (exit {status}; log: build/test/logs/cli-{name}.log)")
    tally.ok(int(match.group(1)))
    if int(match.group(2)) or status != 0:
        for line in re.findall(r"^FAILED .*$", output, re.M):
            print("     ", line)
        tally.bad(f"cli ({name}; log: build/test/logs/cli-{name}.log)", max(1, int(match.group(2))))
    return None


def gcc_release():
    return built.get("gcc") or build("gcc", "gcc", "-DTENSORGRAD_BUILD_TESTS=ON", "-DTENSORGRAD_BUILD_BENCH=ON",
                                         "-DTENSORGRAD_BUILD_EXAMPLES=ON", "-DCMAKE_INSTALL_PREFIX=/usr")


def stage_cli():
    """The command line tool as a user meets it."""
    folders = {"gcc": gcc_release(), "gcc-sanitize": built.get("gcc-sanitize")}
    together(*(lambda name=name, folder=folder: command_line(name, folder / "tensorgrad") for name, folder in folders.items() if folder))
    if gcc_release():
        check("bench.py measures the examples and the host cost, without peers",
              [sys.executable, "bench/bench.py", "--build", gcc_release(), "--quick", "--alone", "--only", "cpu,webgpu,host", "--json"], "cli-bench")


def webgpu_environment():
    """Where the library and a Vulkan driver without a GPU are; else (None, the reason)."""
    library = pathlib.Path(os.environ.get("TENSORGRAD_WEBGPU_LIB") or ROOT / "build/webgpu/libwebgpu_dawn.so")
    driver = pathlib.Path(os.environ.get("VK_DRIVER_FILES") or "/usr/lib/chromium/vk_swiftshader_icd.json")
    if not library.is_file():
        return None, f"{library} is not there: scripts/get-webgpu build/webgpu fetches it"
    if not driver.is_file():
        return None, f"{driver} is not there: Debian's chromium-common has it (scripts/setup.sh webgpu)"
    return {"TENSORGRAD_WEBGPU_LIB": str(library), "VK_DRIVER_FILES": str(driver), "VK_ICD_FILENAMES": str(driver),
            "TENSORGRAD_TEST_WEBGPU": "required", "TENSORGRAD_TEST_HOME": "webgpu"}, ""


WEBGPU_SUITES = "^test_(ops|conv|nn|gradients|random_graphs|random|cases|values|identities|reports|kinds|attack|fusion|sums|wgsl|webgpu|webgpu_many|webgpu_training|train|life|net_curves|steps)$"
# with the guaranteed limits a software adapter is given the kernels of a GPU, workgroup memory and all
GUARANTEED_SUITES = "^test_(ops|identities|random_graphs|fusion|sums|wgsl|wgsl_contract)$"


def stage_webgpu():
    """Everything numeric on WebGPU: Dawn on SwiftShader, the op table with the guaranteed limits too."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return tally.skip(f"webgpu: there is no software adapter for {platform.system()} {platform.machine()} here")
    environment, reason = webgpu_environment()
    folder = gcc_release()
    if not environment or not folder:
        return tally.bad(f"webgpu: {reason or 'there is no build'}")
    ctest(folder, "webgpu", select=WEBGPU_SUITES, env=environment)
    ctest(folder, "webgpu-guaranteed", select=GUARANTEED_SUITES, env={**environment, "TENSORGRAD_WEBGPU_LIMITS": "guaranteed"})
    command_line("webgpu", folder / "tensorgrad", "webgpu", env=environment)
    return None


def stage_header():
    """The public header from C++ and from strict C, by both compilers; each of its parts on its own too."""
    parts = sorted((ROOT / "include/tensorgrad").glob("*.h"))
    # options are designated initialisers that leave fields out on purpose; C++ compilers warn of that under -Wextra
    flags = ["-Wall", "-Wextra", "-Wno-missing-field-initializers", "-Werror", "-Iinclude", "-fsyntax-only"]
    alone = ["-Wno-unused-function"]  # clang: inline functions of the file itself that nothing calls
    for compiler in ("g++", CLANGXX):
        if missing(compiler):
            tally.bad(f"C++ header: {compiler} is not installed")
            continue
        check(f"header from C++20 ({os.path.basename(compiler)})",
              [compiler, "-std=c++20", "-pedantic-errors", *flags, "tests/consumer/header.cpp"], "header")
        check(f"each part from C++20 ({os.path.basename(compiler)})",
              [compiler, "-std=c++20", *flags, *alone, "-x", "c++", *parts], "header")
    for compiler in ("gcc", CLANG):
        if not missing(compiler):
            check(f"header from C11 ({os.path.basename(compiler)})",
                  [compiler, "-std=c11", "-pedantic-errors", *flags, "tests/consumer/main.c"], "header")
            check(f"each part from C11 ({os.path.basename(compiler)})",
                  [compiler, "-std=c11", "-pedantic-errors", *flags, *alone, "-x", "c", *parts], "header")
    gcc = built.get("gcc")
    if gcc and not missing("g++"):
        program = BUILD / "header-cpp"
        if check("C++ program links", ["g++", "-std=c++20", "-Iinclude", "tests/consumer/header.cpp",
                                       gcc / "libtensorgrad.a", "-lm", "-pthread", "-o", program], "header"):
            check("C++ program trains", [program], "header")


def stage_install():
    """Install, static (by gcc) and shared (by clang), then use it through CMake and through pkg-config, by gcc."""
    if missing("pkg-config"):
        tally.bad("pkg-config is not installed")
    for kind, folder in (("static", gcc_release()), ("shared", clang_release())):
        if not folder:
            continue
        prefix = BUILD / f"prefix-{kind}"
        shutil.rmtree(prefix, ignore_errors=True)
        if not check(f"install ({kind})", ["cmake", "--install", folder, "--prefix", prefix], "install"):
            continue
        printed = ["share/man/man1/tensorgrad.1", "share/bash-completion/completions/tensorgrad", "share/zsh/site-functions/_tensorgrad",
                   "share/fish/vendor_completions.d/tensorgrad.fish"]
        check(f"manual page and completions ({kind})", ["grep", "-qc", "--", "train", *(prefix / each for each in printed)], "install")
        consumer = BUILD / f"consumer-{kind}"
        shutil.rmtree(consumer, ignore_errors=True)
        good = check(f"find_package ({kind})", ["cmake", "-S", ROOT / "tests/consumer", "-B", consumer,
                                                f"-DCMAKE_PREFIX_PATH={prefix}"], "install")
        good = good and check(f"find_package builds ({kind})", ["cmake", "--build", consumer], "install")
        if good:
            check(f"find_package program runs ({kind})", [consumer / "consumer"], "install")
        if kind == "static":  # the other way: the sources as a part of the user's own build
            beside = BUILD / "consumer-beside"
            good = check("add_subdirectory", ["cmake", "-S", ROOT / "tests/consumer", "-B", beside, f"-DTENSORGRAD_SOURCE={ROOT}"],
                         "install")
            good = good and check("add_subdirectory builds", ["cmake", "--build", beside, "-j2"], "install")
            if good:
                check("add_subdirectory program runs", [beside / "consumer"], "install")
        if not missing("pkg-config"):
            paths = ":".join(str(path.parent) for path in prefix.rglob("tensorgrad.pc"))
            libraries = ":".join({str(path.parent) for path in prefix.rglob("libtensorgrad.*")})
            program = BUILD / f"consumer-pc-{kind}"
            line = f"gcc -std=c11 -pedantic-errors tests/consumer/main.c $(pkg-config --cflags --libs tensorgrad) -lm -o {program}"
            if check(f"pkg-config ({kind})", ["sh", "-c", line], "install", env={"PKG_CONFIG_PATH": paths}):
                check(f"pkg-config program runs ({kind})", [program], "install", env={"LD_LIBRARY_PATH": libraries})
        if kind == "shared":
            library = next(prefix.rglob("libtensorgrad.so"))
            line = f"nm -D --defined-only {library} | awk '$3 !~ /^tg_/ {{ print; bad = 1 }} END {{ exit bad }}'"
            check("the shared library exports tg_ names only", ["sh", "-c", line], "install")
            line = f"readelf -d {library} | grep NEEDED | grep -vE 'lib(c|m|pthread)\\.so|ld-linux' && exit 1 || exit 0"
            check("the shared library needs libc, libm, libpthread only", ["sh", "-c", line], "install")


def stage_one_file():
    """The one-file library compiles without a warning and trains."""
    folder = BUILD / "one-file"
    if not check("amalgamate", [sys.executable, "scripts/amalgamate.py", folder], "one-file"):
        return
    def train(compiler):
        if missing(compiler):
            return tally.bad(f"one-file: {compiler} is not installed")
        name = os.path.basename(compiler)
        program, log = folder / f"train-{name}", f"one-file-{name}"
        strict = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror"]
        if check(f"one-file compiles ({name})", [compiler, *strict, "-c", folder / "tensorgrad.c", "-o", f"{program}.o"], log) and \
           check(f"one-file links ({name})", [compiler, "-std=c11", "-DTG_CONSUMER_ONE_FILE", f"-I{folder}", "tests/consumer/main.c",
                                              f"{program}.o", "-lm", "-pthread", "-o", program], log):
            check(f"one-file trains ({name})", [program], log)
        return None

    together(lambda: train("gcc"), lambda: train(CLANG or "clang"))


def stage_readme():
    """The C program of README.md, as it stands there."""
    gcc = gcc_release()
    blocks = re.findall(r"^```c\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    programs = [block for block in blocks if "int main(" in block]
    if not programs or not gcc:
        return tally.bad("README.md holds no C program, or there is no library to link it with")
    for i, text in enumerate(programs):
        source = BUILD / f"readme-{i}.c"
        source.write_text(text)
        program = BUILD / f"readme-{i}"
        if check("README program compiles", ["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-Iinclude", source,
                                             gcc / "libtensorgrad.a", "-lm", "-pthread", "-o", program], "readme"):
            check("README program runs", [program], "readme")


def stage_aarch64():
    """Cross build with NEON; the op table and the numeric kernels run under qemu."""
    lacking = missing("aarch64-linux-gnu-gcc", "qemu-aarch64")
    if lacking:
        return tally.bad(f"aarch64: not installed: {', '.join(lacking)}")
    folder = build("aarch64", "aarch64-linux-gnu-gcc",
                   f"-DCMAKE_TOOLCHAIN_FILE={ROOT}/cmake/aarch64-linux-gnu.cmake", "-DTENSORGRAD_BUILD_TESTS=ON",
                   f"-DTENSORGRAD_CMOCKA_SHIM={ROOT}/tests/cmocka_shim",
                   targets=["test_ops", "test_contract", "test_curves", "tensorgrad_cli"])
    if folder:
        ctest(folder, "aarch64", select="^test_(ops|contract)$")
        emulator = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"]
        check("aarch64: curves of mlp-sin", [*emulator, folder / "test_curves"], "aarch64", env={"CMOCKA_SHIM_ONLY": "mlp_sin"})
        check("aarch64: train transformer-add", [*emulator, folder / "tensorgrad", "train", "transformer-add", "--steps", 1,
                                                 "--json"], "aarch64")


fuzz_seconds = 5


def stage_fuzz():
    """Each fuzzer for a few seconds, or as many as --fuzz-seconds says."""
    folder = clang_sanitize()
    if not folder:
        return
    programs = sorted(path for path in (folder / "fuzz").glob("fuzz_*") if os.access(path, os.X_OK))
    if not programs:
        return tally.bad("fuzz: there is no fuzzer")
    def fuzz(program):
        corpus = BUILD / "corpus" / program.name
        corpus.mkdir(parents=True, exist_ok=True)
        seeds = [seed for seed in (ROOT / "fuzz/seeds" / program.name.removeprefix("fuzz_"),) if seed.is_dir()]
        check(f"{program.name} for {fuzz_seconds} s",
              [program, f"-max_total_time={fuzz_seconds}", "-max_len=400", "-len_control=0", "-rss_limit_mb=3000", "-timeout=30",
               "-print_final_stats=1", f"-artifact_prefix={corpus}/", corpus, *seeds], f"fuzz-{program.name}", timeout=fuzz_seconds + 120)

    together(*(lambda program=program: fuzz(program) for program in programs))


def stage_demo():
    """make demo from nothing: the loss ends under 1e-3. Its time is printed; how long is for people to judge."""
    folder = BUILD / "gcc" # stage gcc adds to what is compiled here
    shutil.rmtree(folder, ignore_errors=True)
    start = time.monotonic()
    check("make demo", ["make", "--no-print-directory", "demo", f"DEMO_BUILD={folder}",
                        "DEMO_OPTIONS=-DCMAKE_C_COMPILER=gcc -DTENSORGRAD_WERROR=ON"], "demo", timeout=600)
    print(f"    make demo took {time.monotonic() - start:.0f} s, the build included", flush=True)


DATA = ROOT / "build/data"
QUALITY = [("digits-cnn", "accuracy", 0.97, 1), ("makemore", "held_out_loss", 2.15, -1), ("char-gru", "held_out_loss", 1.75, -1)]


def data_fetched():
    return check("get-data fetches digits, names and a novel", [sys.executable, "scripts/get-data", DATA], "examples")


def example_lines(folder, name, *options):
    """What `train NAME --json` prints, parsed; None when it failed."""
    status, output = run([folder / "tensorgrad", "train", name, "--data", DATA, "--json", *options], f"examples-{name}")
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return lines if status == 0 and lines else None


def example_learns(folder, name, key, bound, sign):
    lines = example_lines(folder, name, "--device", "cpu", "--threads", 1)
    score = lines[-1].get(key) if lines else None
    if score is None or sign * score < sign * bound:
        return tally.bad(f"{name}: {key} is {score}, {bound} wanted (log: build/test/logs/examples-{name}.log)")
    tally.ok()
    return print(f"    {name}: {key} {score:.4f} ({bound} wanted), loss {lines[0]['loss']:.4f} to {lines[-1]['loss']:.4f}", flush=True)


def example_agrees(folder, name, steps):
    """The same bits with one thread and with three. (On WebGPU: test_net_curves and stage web.)"""
    one, three = (example_lines(folder, name, "--steps", steps, "--device", "cpu", "--threads", threads) for threads in (1, 3))
    if one and three and [line["loss"] for line in one] == [line["loss"] for line in three]:
        return tally.ok()
    return tally.bad(f"{name}: the losses depend on the number of threads")


def stage_examples():
    """The examples that learn from files reach the quality that README.md states; threads change nothing."""
    folder = gcc_release()
    if not folder or not data_fetched():
        return
    together(*(lambda row=row: example_learns(folder, *row) for row in QUALITY),
             *(lambda row=row: example_agrees(folder, row[0], 3) for row in QUALITY))


def counted(name, command, **options):
    """A program that ends with "N passed, N failed", or node's own runner."""
    status, output = run(command, f"web-{name}", cwd=ROOT / "web", **options)
    found = re.search(r"^(\d+) passed, (\d+) failed$", output, re.M)
    counts = found.groups() if found else [re.search(rf"^\W*{word} (\d+)$", output, re.M) for word in ("pass", "fail")]
    if not all(counts):
        return tally.bad(f"web {name}: no result (exit {status}; log: build/test/logs/web-{name}.log)")
    passed, failed = (int(each if found else each.group(1)) for each in counts)
    tally.ok(passed)
    for line in re.findall(r"^(?:FAILED|not ok) .*$", output, re.M):
        print("     ", line)
    if failed or status != 0 or not passed:
        tally.bad(f"web {name} (exit {status}; log: build/test/logs/web-{name}.log)", max(1, failed))
    return None


def stage_web():
    """The package for browsers and Node: built, type-checked, run in Node and in headless Chromium on CPU and WebGPU; the demo page."""
    lacking = missing("node", "npm", CLANG, "wasm-ld-19", "chromium")
    if lacking:
        return tally.bad(f"web: not installed: {', '.join(map(str, lacking))} (scripts/setup.sh web)")
    native = gcc_release()
    good = check("web: npm ci", ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], "web-build", cwd=ROOT / "web")
    good = good and check("web: core", ["bash", "scripts/build-wasm", "build/wasm"], "web-build")
    good = good and check("web: package", ["node", "build.mjs"], "web-build", cwd=ROOT / "web")
    good = good and check("web: demo page", ["node", "demo/build.mjs"], "web-build", cwd=ROOT / "web")
    if not good or not native:
        return None
    check("web: types", ["node", "node_modules/typescript/bin/tsc", "-p", "tsconfig.json"], "web-build", cwd=ROOT / "web")
    program = native / "tensorgrad"
    driver = "/usr/lib/chromium/vk_swiftshader_icd.json"
    vulkan = {"VK_DRIVER_FILES": driver, "VK_ICD_FILENAMES": driver}
    wasm = {"TENSORGRAD_WASM": str(ROOT / "build/wasm/core.wasm")}
    listed = run(["node", "test/suites.mjs", "--list"], "web-build", cwd=ROOT / "web")[1].split()
    suites = check("web: native suites", ["bash", "scripts/build-wasm-tests", "build/wasm", *listed], "web-build")

    def others():
        counted("package", ["node", "test/pack.mjs"])
        counted("core", ["node", "--test", "test/core.test.mjs"], env=wasm)
        counted("api", ["node", "test/run.mjs"], env=wasm)
        counted("demo", ["node", "test/browser-demo.mjs"])

    # the suites compile shaders most of the time, on one core; what measures speed comes after
    together(*([lambda: counted("suites", ["node", "test/suites.mjs", "../build/wasm"])] if suites else []), others)
    data = ["--data", DATA] if data_fetched() else []
    counted("node", ["node", "test/node.mjs", "--webgpu", "--native", program, *data], env=vulkan)
    counted("browser", ["node", "test/browser.mjs", "--native", program, *data])
    return None


STAGES = [
    ("source", stage_source), ("demo", stage_demo), ("gcc", stage_gcc), ("header", stage_header), ("readme", stage_readme),
    ("examples", stage_examples), ("one-file", stage_one_file), ("install", stage_install), ("webgpu", stage_webgpu), ("clang", stage_clang),
    ("gcc-sanitize", stage_gcc_sanitize), ("cli", stage_cli), ("clang-sanitize", stage_clang_sanitize),
    ("threads", stage_threads), ("aarch64", stage_aarch64), ("fuzz", stage_fuzz), ("web", stage_web),
]


def main():
    global jobs, fuzz_seconds
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--fuzz-seconds", type=int, default=fuzz_seconds)
    parser.add_argument("stages", nargs="*")
    arguments = parser.parse_args()
    jobs, fuzz_seconds = arguments.jobs, arguments.fuzz_seconds
    known = dict(STAGES)
    for stage in arguments.stages:
        if stage not in known:
            parser.error(f"unknown stage {stage}; there are {', '.join(known)}")
    shutil.rmtree(LOGS, ignore_errors=True)
    begin, spent = time.monotonic(), []
    for name, function in STAGES:
        if name not in (arguments.stages or known):
            continue
        print(f"== {name}: {function.__doc__}", flush=True)
        start, used, before = time.monotonic(), processor_time(), tally.passed
        function()
        spent.append((name, time.monotonic() - start, processor_time() - used))
        print(f"   {tally.passed - before} checks passed in {spent[-1][1]:.0f} s", flush=True)
    print("seconds (of processors): " + ", ".join(f"{name} {wall:.0f} ({processors:.0f})" for name, wall, processors in spent))
    print(f"total time {time.monotonic() - begin:.0f} s, {tally.skipped} skipped")
    if tally.failures:
        print("failed:")
        for failure in tally.failures:
            print(f"  {failure}")
    print(f"{tally.passed} passed, {tally.failed} failed")
    return 1 if tally.failed or not tally.passed else 0


if __name__ == "__main__":
    sys.exit(main())
