"""native: the bodies of jobs on C builds: source rules, suites, installed packages, the command line,
examples, fuzzers, WebGPU on a software adapter. Owns how each runs and is counted. ../test.py has the
list of jobs and their dependencies."""
import collections
import json
import os
import pathlib
import platform
import re
import shutil
import sys
import time

from testing.runner import BUILD, ROOT, check, missing, run, tally

CLANG = shutil.which("clang-19") or shutil.which("clang")
CLANGXX = shutil.which("clang++-19") or shutil.which("clang++")
DATA = ROOT / "build/data"


def build(name, cc, *options, targets=(), jobs=1):
    """A job that configures and builds build/test/NAME."""
    def body():
        if missing(cc):
            return tally.bad(f"build {name}: {cc or 'clang'} is not installed")
        configure = ["cmake", "-S", ROOT, "-B", BUILD / name, f"-DCMAKE_C_COMPILER={cc}", "-DTENSORGRAD_WERROR=ON", *options]
        compile_command = ["cmake", "--build", BUILD / name, "-j", jobs, *(["--target", *targets] if targets else [])]
        if check(f"configure {name}", configure, name):
            check(f"build {name}", compile_command, name)
        return None

    return body


def ctest(name, log, select=None, env=None, without=None):
    """Runs the suites of a build, those that need a WebGPU device only when selected, and adds up what cmocka says."""
    command = ["ctest", "--test-dir", BUILD / name, "--verbose"]
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
    for number, suite in sorted(names.items(), key=lambda item: int(item[0])):
        count_suite(suite, log, counts[number], verdict[number])


def count_suite(suite, log, counts, verdict):
    passed, failed, skipped = counts
    where = f"log: build/test/logs/{log}.log"
    tally.ok(passed)
    for _ in range(skipped):
        tally.skip(f"a case of {suite} ({where})")
    if failed:
        tally.bad(f"{suite} ({log}: {failed} cases; {where})", failed)
    elif verdict == "Skipped":
        tally.skip(f"{suite} ({where})")
    elif verdict != "Passed":
        tally.bad(f"{suite} ({log}: {verdict}; {where})")
    elif passed == 0:
        tally.bad(f"{suite} ({log}: ran no case)")


def suites(name, log, **options):
    return lambda: ctest(name, log, **options)


def source():
    """Layers, sizes, forbidden calls, opening comments, pages of all functions; generated files; the shell scripts parse."""
    for rule in ("layers", "sizes", "calls", "opening", "documented"):
        check(f"source rule: {rule}", [sys.executable, "scripts/check_source.py", rule], "source")
    check("rules of the source find what they forbid", [sys.executable, "scripts/test_source_rules.py"], "source")
    check("the scheduler of these jobs", [sys.executable, "scripts/test_runner.py"], "source")
    for script in sorted(ROOT.glob("scripts/*.sh")) + [ROOT / ".ci/run"]:
        check(f"bash -n {script.name}", ["bash", "-n", script], "source")
    check("both sides of the boundary are what boundary.def gives", [sys.executable, "scripts/make-boundary", "--check"], "source")
    check("docs/ops.md is what ops.def gives", [sys.executable, "scripts/make_ops_page.py", "--check", "docs/ops.md"],
          "source")


def demo():
    """make demo from nothing: the loss ends under 1e-3. The suites of gcc add to this build. The time
    is printed; people judge it."""
    folder = BUILD / "gcc"
    shutil.rmtree(folder, ignore_errors=True)
    start = time.monotonic()
    check("make demo", ["make", "--no-print-directory", "demo", "JOBS=1", f"DEMO_BUILD={folder}",
                        "DEMO_OPTIONS=-DCMAKE_C_COMPILER=gcc -DTENSORGRAD_WERROR=ON"], "demo", timeout=900)
    tally.say(f"    make demo took {time.monotonic() - start:.0f} s on one core, the build included")


def threads():
    """TSan on the suites that use the pool, on threads that share a GPU, and on two examples with more threads than cores."""
    folder = BUILD / "tsan"
    ctest("tsan", "tsan", select="^test_base$")
    check("TSan: threads that share a GPU", [folder / "test_webgpu_faults", "threads_share_one_gpu"], "tsan")
    for example, steps in (("mlp-sin", 30), ("transformer-add", 3)):
        check(f"TSan: train {example} on 4 threads",
              [folder / "tensorgrad", "train", example, "--steps", steps, "--threads", 4, "--json"], "tsan")


def command_line(name, folder, *options, env=None):
    """The command line tool as a user meets it."""
    status, output = run([sys.executable, "tests/test_cli.py", BUILD / folder / "tensorgrad", *options], f"cli-{name}", env=env)
    match = re.search(r"^(\d+) passed, (\d+) failed$", output, re.M)
    if not match:
        return tally.bad(f"cli ({name}): no result (exit {status}; log: build/test/logs/cli-{name}.log)")
    tally.ok(int(match.group(1)))
    if int(match.group(2)) or status != 0:
        for line in re.findall(r"^FAILED .*$", output, re.M):
            tally.say(f"      {line}")
        tally.bad(f"cli ({name}; log: build/test/logs/cli-{name}.log)", max(1, int(match.group(2))))
    return None


def bench():
    check("bench.py measures the examples and the host cost, without peers",
          [sys.executable, "bench/bench.py", "--build", BUILD / "gcc", "--quick", "--alone", "--only", "cpu,webgpu,host,scale", "--json", "--plot",
           BUILD / "scale.svg"], "cli-bench")


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


WEBGPU_SUITES = ("ops conv nn gradients random_graphs random cases values identities reports kinds attack fusion sums wgsl webgpu webgpu_many "
                 "webgpu_training train life net_curves steps").split()
# with the guaranteed limits a software adapter is given the kernels of a GPU, workgroup memory and all
GUARANTEED_SUITES = "ops identities random_graphs fusion sums wgsl wgsl_contract".split()


def on_webgpu(log, body):
    """Dawn on SwiftShader: calls body(environment)."""
    def on_device():
        if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
            return tally.skip(f"{log}: there is no software adapter for {platform.system()} {platform.machine()} here")
        environment, reason = webgpu_environment()
        return body(environment) if environment else tally.bad(f"{log}: {reason}")

    return on_device


def webgpu(log, names, **more):
    return on_webgpu(log, lambda environment: ctest("gcc", log, select=f"^test_({'|'.join(names)})$", env={**environment, **more}))


def header():
    """The public header from C++ and from strict C, by both compilers; each of its parts on its own too."""
    parts = sorted((ROOT / "include/tensorgrad").glob("*.h"))
    # options are designated initialisers that leave fields out; C++ compilers warn of that under -Wextra
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
    if not missing("g++"):
        program = BUILD / "header-cpp"
        if check("C++ program links", ["g++", "-std=c++20", "-Iinclude", "tests/consumer/header.cpp",
                                       BUILD / "gcc/libtensorgrad.a", "-lm", "-pthread", "-o", program], "header"):
            check("C++ program trains", [program], "header")


def readme():
    """The C programs of README.md, as they are printed there: as strict C11 and as C++."""
    blocks = re.findall(r"^```c\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    programs = [block for block in blocks if "int main(" in block]
    if not programs:
        return tally.bad("README.md holds no C program")
    languages = [("C11", ["gcc", "-std=c11"], "c"), ("C++20", ["g++", "-std=c++20", "-Wno-missing-field-initializers"], "cpp")]
    for i, text in enumerate(programs):
        for language, compiler, suffix in languages:
            text_file, program = BUILD / f"readme-{i}.{suffix}", BUILD / f"readme-{i}-{suffix}"
            text_file.write_text(text)
            command = [*compiler, "-pedantic-errors", "-Wall", "-Wextra", "-Werror", "-Iinclude", text_file, BUILD / "gcc/libtensorgrad.a",
                       "-lm", "-pthread", "-o", program]
            if check(f"README program compiles as {language}", command, "readme"):
                check(f"README program runs ({language})", [program], "readme")
    return None


def install(kind, folder):
    """Installs a build, then uses it through CMake and through pkg-config, by gcc."""
    log = f"install-{kind}"
    if missing("pkg-config"):
        return tally.bad("pkg-config is not installed")
    prefix = BUILD / f"prefix-{kind}"
    shutil.rmtree(prefix, ignore_errors=True)
    if not check(f"install ({kind})", ["cmake", "--install", BUILD / folder, "--prefix", prefix], log):
        return None
    printed = ["share/man/man1/tensorgrad.1", "share/bash-completion/completions/tensorgrad", "share/zsh/site-functions/_tensorgrad",
               "share/fish/vendor_completions.d/tensorgrad.fish"]
    check(f"manual page and completions ({kind})", ["grep", "-qc", "--", "train", *(prefix / each for each in printed)], log)
    consume(f"find_package ({kind})", BUILD / f"consumer-{kind}", f"-DCMAKE_PREFIX_PATH={prefix}", log)
    consume_pkg_config(kind, prefix, log)
    if kind == "shared":
        library = next(prefix.rglob("libtensorgrad.so"))
        line = f"nm -D --defined-only {library} | awk '$3 !~ /^tg_/ {{ print; bad = 1 }} END {{ exit bad }}'"
        check("the shared library exports tg_ names only", ["sh", "-c", line], log)
        line = f"readelf -d {library} | grep NEEDED | grep -vE 'lib(c|m|pthread)\\.so|ld-linux' && exit 1 || exit 0"
        check("the shared library needs libc, libm, libpthread only", ["sh", "-c", line], log)
    return None


def consume(name, folder, option, log, *options):
    """tests/consumer, configured with one option, builds and runs."""
    shutil.rmtree(folder, ignore_errors=True)
    if check(name, ["cmake", "-S", ROOT / "tests/consumer", "-B", folder, option, *options], log) and \
       check(f"{name} builds", ["cmake", "--build", folder], log):
        check(f"{name} program runs", [folder / "consumer"], log)


def consume_pkg_config(kind, prefix, log):
    paths = ":".join(str(path.parent) for path in prefix.rglob("tensorgrad.pc"))
    libraries = ":".join({str(path.parent) for path in prefix.rglob("libtensorgrad.*")})
    program = BUILD / f"consumer-pc-{kind}"
    line = f"gcc -std=c11 -pedantic-errors tests/consumer/main.c $(pkg-config --cflags --libs tensorgrad) -lm -o {program}"
    if check(f"pkg-config ({kind})", ["sh", "-c", line], log, env={"PKG_CONFIG_PATH": paths}):
        check(f"pkg-config program runs ({kind})", [program], log, env={"LD_LIBRARY_PATH": libraries})


def beside():
    """The other way: the sources as a part of the user's own build; not optimised, to save time."""
    consume("add_subdirectory", BUILD / "consumer-beside", f"-DTENSORGRAD_SOURCE={ROOT}", "install-beside", "-DCMAKE_BUILD_TYPE=Debug")


def one_file(compiler):
    """The one-file library compiles without a warning, at -O1 to save time, and trains."""
    name = os.path.basename(compiler or "clang")
    log, folder = f"one-file-{name}", BUILD / f"one-file-{name}"
    if missing(compiler):
        return tally.bad(f"one-file: {name} is not installed")
    if not check(f"amalgamate ({name})", [sys.executable, "scripts/amalgamate.py", folder], log):
        return None
    program, strict = folder / "train", ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror"]
    if check(f"one-file compiles ({name})", [compiler, *strict, "-c", folder / "tensorgrad.c", "-o", f"{program}.o"], log) and \
       check(f"one-file links ({name})", [compiler, "-std=c11", "-DTG_CONSUMER_ONE_FILE", f"-I{folder}", "tests/consumer/main.c",
                                          f"{program}.o", "-lm", "-pthread", "-o", program], log):
        check(f"one-file trains ({name})", [program], log)
    return None


def aarch64():
    """NEON: the op table and the numeric kernels run under qemu."""
    ctest("aarch64", "aarch64", select="^test_(ops|contract)$")
    emulator = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"]
    check("aarch64: curves of mlp-sin", [*emulator, BUILD / "aarch64/test_curves", "*mlp_sin*"], "aarch64")
    check("aarch64: train transformer-add", [*emulator, BUILD / "aarch64/tensorgrad", "train", "transformer-add", "--steps", 1, "--json"],
          "aarch64")


def fuzz(name, seconds):
    """One fuzzer for some seconds."""
    program, corpus = BUILD / "clang-sanitize/fuzz" / name, BUILD / "corpus" / name
    corpus.mkdir(parents=True, exist_ok=True)
    seeds = [seed for seed in (ROOT / "fuzz/seeds" / name.removeprefix("fuzz_"),) if seed.is_dir()]
    check(f"{name} for {seconds} s",
          [program, f"-max_total_time={seconds}", "-max_len=400", "-len_control=0", "-rss_limit_mb=3000", "-timeout=30",
           "-print_final_stats=1", f"-artifact_prefix={corpus}/", corpus, *seeds], name, timeout=seconds + 120)


QUALITY = [("digits-cnn", "accuracy", 0.97, 1), ("makemore", "held_out_loss", 2.15, -1), ("char-gru", "held_out_loss", 1.75, -1)]


def data():
    check("get-data fetches digits, names and a novel", [sys.executable, "scripts/get-data", DATA], "examples")


def example_lines(name, *options):
    """What `train NAME --json` prints, parsed; None when it failed."""
    status, output = run([BUILD / "gcc/tensorgrad", "train", name, "--data", DATA, "--json", *options], f"examples-{name}")
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return lines if status == 0 and lines else None


def example_learns(name, key, bound, sign):
    """An example that learns from files reaches the quality that README.md states."""
    lines = example_lines(name, "--device", "cpu", "--threads", 1)
    score = lines[-1].get(key) if lines else None
    if score is None or sign * score < sign * bound:
        return tally.bad(f"{name}: {key} is {score}, {bound} wanted (log: build/test/logs/examples-{name}.log)")
    tally.ok()
    return tally.say(f"    {name}: {key} {score:.4f} ({bound} wanted), loss {lines[0]['loss']:.4f} to {lines[-1]['loss']:.4f}")


def examples_agree():
    """The same bits with one thread and with three. (On WebGPU: test_net_curves and stage web.)"""
    for name, *_ in QUALITY:
        one, three = (example_lines(name, "--steps", 3, "--device", "cpu", "--threads", threads) for threads in (1, 3))
        if one and three and [line["loss"] for line in one] == [line["loss"] for line in three]:
            tally.ok()
        else:
            tally.bad(f"{name}: the losses depend on the number of threads")
