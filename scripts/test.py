#!/usr/bin/env python3
"""Runs the checks of the project and ends with one line: N passed, N failed.

usage: scripts/test.py [--all] [--jobs N] [--fuzz-seconds N] [STAGE...]     stages and jobs: --list; none means all.

One graph of jobs: each runs on a core of its own as soon as the jobs that it needs have passed, the
longest path first. Without --all, jobs that cost minutes and rarely differ are left out
(docs/internals/testing.md lists them). Counts test cases: cmocka's own numbers for the suites, one
for each check of the scripts. Everything is built under build/test; logs go to build/test/logs. A
check that cannot run says why and counts as failed, except optional ones, which print
"skipped: reason".
"""
import argparse
import os
import sys

from testing import native, web
from testing.native import CLANG
from testing.runner import Job, ROOT, choose, run_all

# Suites that count allocations and calls, or take minutes: their results do not depend on the compiler.
COUNTING = "^test_(alloc_failure|webgpu_faults|scaling)$"
# Suites of what clang may compile differently: arithmetic, vectors, the order of evaluation.
NUMERIC = "^test_(ops|vm|contract|random_graphs|values|identities|sums|curves|random|optim|emit)$"
# Minutes under sanitizers; gcc's run them.
LONG = "^test_(alloc_failure|webgpu_faults|contract|wgsl_contract|ops|vm|scaling)$"


def build_jobs(cores):
    """Every build on one core, or on half of them: two builds at a time fill a machine."""
    def build(name, cc, *options, targets=()):
        return native.build(name, cc, *options, targets=targets, jobs=max(1, cores // 2))

    tests, prefix = "-DTENSORGRAD_BUILD_TESTS=ON", "-DCMAKE_INSTALL_PREFIX=/usr"
    sanitize = "-DTENSORGRAD_SANITIZE=address,undefined"
    return [
        Job("demo", "demo", native.demo, seconds=45),
        Job("gcc", "gcc: build", build("gcc", "gcc", tests, "-DTENSORGRAD_BUILD_BENCH=ON", "-DTENSORGRAD_BUILD_EXAMPLES=ON", prefix),
            ["demo"], seconds=60),
        Job("clang", "clang: build", build("clang", CLANG, tests, "-DBUILD_SHARED_LIBS=ON", prefix), seconds=100),
        Job("gcc-sanitize", "gcc-sanitize: build", build("gcc-sanitize", "gcc", tests, "-DTENSORGRAD_BUILD_EXAMPLES=OFF", sanitize),
            seconds=150),
        # with the fuzzers, which need the same library
        Job("clang-sanitize", "clang-sanitize: build",
            build("clang-sanitize", CLANG, tests, "-DTENSORGRAD_BUILD_FUZZERS=ON", "-DTENSORGRAD_BUILD_EXAMPLES=OFF", sanitize), seconds=150),
        Job("threads", "tsan: build", build("tsan", "gcc", tests, "-DTENSORGRAD_SANITIZE=thread",
                                            targets=["tensorgrad_tests", "tensorgrad_cli"]), seconds=60),
        Job("aarch64", "aarch64: build",
            build("aarch64", "aarch64-linux-gnu-gcc", f"-DCMAKE_TOOLCHAIN_FILE={ROOT}/cmake/aarch64-linux-gnu.cmake", tests,
                  f"-DTENSORGRAD_CMOCKA_SHIM={ROOT}/tests/cmocka_shim",
                  targets=["tensorgrad_tests", "tensorgrad_cli"]), seconds=60),
        Job("web", "web: package", web.package, seconds=60),
        Job("web", "web: build suites", web.build_suites, ["web: package"], seconds=80),
    ]


def native_jobs():
    gcc, clang, sanitize = ["gcc: build"], ["clang: build"], ["gcc-sanitize: build"]
    return [
        Job("source", "source", native.source, seconds=5),
        Job("gcc", "gcc: suites", native.suites("gcc", "gcc"), gcc, seconds=110),
        Job("clang", "clang: suites", native.suites("clang", "clang", select=NUMERIC), clang, seconds=40),
        Job("clang", "clang: all suites", native.suites("clang", "clang-all", without=COUNTING), clang, seconds=80, every=True),
        Job("gcc-sanitize", "gcc-sanitize: suites", native.suites("gcc-sanitize", "gcc-sanitize"), sanitize, seconds=250),
        Job("clang-sanitize", "clang-sanitize: suites", native.suites("clang-sanitize", "clang-sanitize", without=LONG),
            ["clang-sanitize: build"], seconds=150),
        Job("threads", "threads", native.threads, ["tsan: build"], seconds=40),
        Job("aarch64", "aarch64", native.aarch64, ["aarch64: build"], seconds=60),
        Job("header", "header", native.header, gcc, seconds=10),
        Job("readme", "readme", native.readme, gcc),
        Job("install", "install: static", lambda: native.install("static", "gcc"), gcc),
        Job("install", "install: shared", lambda: native.install("shared", "clang"), clang),
        Job("install", "install: add_subdirectory", native.beside, seconds=40),
        Job("one-file", "one-file: gcc", lambda: native.one_file("gcc"), seconds=30),
        Job("one-file", "one-file: clang", lambda: native.one_file(CLANG), seconds=30),
        Job("cli", "cli: gcc", lambda: native.command_line("gcc", "gcc"), gcc, seconds=40),
        Job("cli", "cli: gcc-sanitize", lambda: native.command_line("gcc-sanitize", "gcc-sanitize"), sanitize, seconds=60),
        Job("cli", "cli: bench", native.bench, gcc, seconds=15),
        Job("examples", "examples: data", native.data),
        Job("examples", "examples: threads", native.examples_agree, [*gcc, "examples: data"], seconds=20),
        *(Job("examples", f"examples: {row[0]}", lambda row=row: native.example_learns(*row), [*gcc, "examples: data"], seconds=50)
          for row in native.QUALITY),
    ]


def webgpu_jobs():
    gcc = ["gcc: build"]
    command_line = native.on_webgpu("cli-webgpu", lambda env: native.command_line("webgpu", "gcc", "webgpu", env=env))
    return [
        Job("webgpu", "webgpu: suites", native.webgpu("webgpu", native.WEBGPU_SUITES), gcc, seconds=250),
        Job("webgpu", "webgpu: guaranteed limits",
            native.webgpu("webgpu-guaranteed", native.GUARANTEED_SUITES, TENSORGRAD_WEBGPU_LIMITS="guaranteed"), gcc, seconds=150),
        Job("webgpu", "webgpu: cli", command_line, gcc, seconds=20),
    ]


def web_jobs():
    package, built = ["web: package"], ["gcc: build", "web: package", "examples: data"]
    return [
        Job("web", "web: core", web.core, package, seconds=15),
        Job("web", "web: api", web.api, package, seconds=30),
        Job("web", "web: demo page", web.demo, package, seconds=20),
        Job("web", "web: suites on the CPU", web.suites("cpu"), ["web: build suites"], seconds=60),
        Job("web", "web: suites on WebGPU", web.suites("webgpu"), ["web: build suites"], seconds=100),
        # they measure speed, and how long a page is busy
        Job("web", "web: node", web.node, built, seconds=90, whole=True),
        Job("web", "web: browser", web.browser, built, seconds=120, whole=True),
    ]


def fuzz_jobs(seconds):
    names = sorted(path.stem for path in (ROOT / "fuzz").glob("fuzz_*.c"))
    return [Job("fuzz", f"fuzz: {name}", lambda name=name: native.fuzz(name, seconds), ["clang-sanitize: build"], seconds=seconds)
            for name in names]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--all", action="store_true", help="also what the short run leaves out")
    parser.add_argument("--fuzz-seconds", type=int, default=5)
    parser.add_argument("--list", action="store_true", help="the jobs of each stage")
    parser.add_argument("stages", nargs="*")
    arguments = parser.parse_args()
    jobs = [*build_jobs(arguments.jobs), *native_jobs(), *webgpu_jobs(), *web_jobs(), *fuzz_jobs(arguments.fuzz_seconds)]
    if arguments.list:
        for job in jobs:
            print(f"{job.stage}: {job.name}{' (--all)' if job.every else ''}")
        return 0
    known = {job.stage for job in jobs} | {job.name for job in jobs}
    for stage in arguments.stages:
        if stage not in known:
            parser.error(f"unknown stage {stage}; there are {', '.join(sorted({job.stage for job in jobs}))}")
    return run_all(choose(jobs, arguments.stages, arguments.all), arguments.jobs)


if __name__ == "__main__":
    sys.exit(main())
