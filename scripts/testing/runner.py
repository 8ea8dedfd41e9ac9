"""runner: the parts that tests share. Owns commands and their logs, counts, and the scheduler, which
keeps every core busy with jobs whose needs are met. Must not know a test."""
import collections
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / "build/test"
LOGS = BUILD / "logs"

SANITIZER_ENVIRONMENT = {
    "ASAN_OPTIONS": "detect_leaks=1:allocator_may_return_null=1:strict_string_checks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": "halt_on_error=1",
}


class Job:
    """A function that checks something. It starts when every job it needs has passed, on a core of its own; `whole` jobs start when
    nothing else runs, because they measure time or fill every core. `seconds` is a guess of what it takes: the longest path first.
    `stage` is the name people ask for; `every`: left out of the short run."""

    def __init__(self, stage, name, body, needs=(), seconds=5, whole=False, every=False):
        self.stage, self.name, self.body, self.needs = stage, name, body, tuple(needs)
        self.seconds, self.whole, self.every = seconds, whole, every
        self.passed = self.failed = 0
        self.lines, self.processors, self.wall = [], 0.0, 0.0


class Tally:
    """Counts cases, for the job of the thread that calls."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.failures = []
        self.lock = threading.Lock()
        self.local = threading.local()

    @property
    def job(self):
        return getattr(self.local, "job", None)

    def say(self, text):
        if self.job:
            self.job.lines.append(text)
        else:
            print(text, flush=True)

    def ok(self, count=1):
        with self.lock:
            self.passed += count
        if self.job:
            self.job.passed += count

    def bad(self, what, count=1):
        with self.lock:
            self.failed += count
            self.failures.append(what)
        if self.job:
            self.job.failed += count
        self.say(f"    FAILED {what}")

    def skip(self, what):
        with self.lock:
            self.skipped += 1
        self.say(f"    skipped: {what}")


tally = Tally()
running = set()  # processes


def run(command, log, timeout=1800, env=None, cwd=ROOT, stdin=subprocess.DEVNULL):
    """Appends the command and its output to the log; returns (exit status, output)."""
    LOGS.mkdir(parents=True, exist_ok=True)
    command = [str(part) for part in command]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TENSORGRAD_")}
    # the user's WebGPU library must not turn a test of the CPU into one of a GPU, and the user's tuning
    # table must not change its kernels
    environment = {**kept, "XDG_DATA_HOME": str(BUILD / "no-data"), "TENSORGRAD_TUNING": "off", **SANITIZER_ENVIRONMENT, **(env or {})}
    with tempfile.TemporaryFile() as said:
        try:
            process = subprocess.Popen(command, cwd=cwd, env=environment, stdin=stdin, stdout=said, stderr=subprocess.STDOUT,
                                       start_new_session=True)
        except OSError as error:
            status, note = 127, f"{error}\n"
        else:
            status, note = finish(process, timeout)
        said.seek(0)
        output = said.read().decode("utf-8", "replace") + note
    with open(LOGS / f"{log}.log", "a", encoding="utf-8") as file:
        file.write(f"$ {' '.join(command)}\n{output}\n[exit {status}]\n\n")
    return status, output


def finish(process, timeout):
    """Waits; counts the processor time of the process and its children for the job. Returns (exit status, note for the log)."""
    late = threading.Event()

    def end():
        late.set()
        kill(process)

    timer = threading.Timer(timeout, end)
    running.add(process)
    timer.start()
    try:
        _, status, usage = os.wait4(process.pid, 0)
    finally:
        timer.cancel()
        running.discard(process)
    process.returncode = os.waitstatus_to_exitcode(status)
    if tally.job:
        tally.job.processors += usage.ru_utime + usage.ru_stime
    kill(process)  # what it started and left
    if late.is_set():
        return 124, f"\ntimed out after {timeout} s\n"
    return process.returncode, ""


def kill(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except OSError:
        pass


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
        tally.say(f"      {line}")
    return False


def missing(*tools):
    return [tool for tool in tools if not tool or not shutil.which(tool)]


class Scheduler:
    """Runs jobs on `cores` cores. A job whose need failed, or was not run, fails without running."""

    def __init__(self, jobs, cores):
        self.jobs, self.cores = jobs, cores
        self.named = {job.name: job for job in jobs}
        self.ended, self.busy = set(), set()
        self.changed = threading.Condition()
        self.paths = {}

    def path(self, job):
        """Seconds from its start to the end of the last job that waits for it."""
        if job.name not in self.paths:
            after = [self.path(each) for each in self.jobs if job.name in each.needs]
            self.paths[job.name] = job.seconds + max(after, default=0)
        return self.paths[job.name]

    def next(self, waiting):
        ready = [job for job in waiting if all(need in self.ended for need in job.needs if need in self.named)]
        shared = [job for job in ready if not job.whole]
        if len(self.busy) < self.cores and shared and not any(job.whole for job in self.busy):
            return max(shared, key=self.path)
        if not self.busy and ready:
            return max(ready, key=self.path)
        return None

    def start(self, job):
        broken = [need for need in job.needs if need in self.named and self.named[need].failed]
        begin = time.monotonic()
        tally.local.job = job
        try:
            if broken:
                tally.bad(f"{job.name}: not run, because {', '.join(broken)} failed")
            else:
                job.body()
        except BaseException as error:  # pylint: disable=broad-except  # also SystemExit: run() waits for the end of each job
            tally.bad(f"{job.name}: {type(error).__name__}: {error}")
        job.wall = time.monotonic() - begin
        with self.changed:
            print("\n".join([f"== {job.stage}: {job.name}: {job.passed} passed in {job.wall:.0f} s", *job.lines]), flush=True)
            self.busy.discard(job)
            self.ended.add(job.name)
            self.changed.notify()

    def run(self):
        waiting = list(self.jobs)
        with self.changed:
            while waiting or self.busy:
                job = self.next(waiting)
                if job is None:
                    self.changed.wait(1)
                    continue
                waiting.remove(job)
                self.busy.add(job)
                threading.Thread(target=self.start, args=(job,), daemon=True).start()


def choose(jobs, stages, every):
    """The jobs of these stages (none: of all), and what they need."""
    wanted = [job for job in jobs if (job.stage in stages or job.name in stages if stages else every or not job.every)]
    named, chosen = {job.name: job for job in jobs}, {}
    while wanted:
        job = wanted.pop()
        chosen[job.name] = job
        wanted += [named[need] for need in job.needs if need not in chosen]
    return [job for job in jobs if job.name in chosen]


def run_all(jobs, cores):
    """Ends with one line, N passed, N failed; returns the exit status."""
    shutil.rmtree(LOGS, ignore_errors=True)
    begin = time.monotonic()
    try:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the processes of all jobs, as Ctrl-C does
        Scheduler(jobs, cores).run()
    except KeyboardInterrupt:
        for process in list(running):
            kill(process)
        print("interrupted", flush=True)
        return 130
    stages = collections.defaultdict(list)
    for job in jobs:
        stages[job.stage].append(job)
    print("seconds of each job (of processors):")
    for stage, members in stages.items():
        print(f"  {stage}: " + ", ".join(f"{job.name} {job.wall:.0f} ({job.processors:.0f})" for job in members))
    total, spent = time.monotonic() - begin, sum(job.processors for job in jobs)
    print(f"total time {total:.0f} s on {cores} cores, {spent:.0f} s of processors, {tally.skipped} skipped")
    if tally.failures:
        print("failed:")
        for failure in tally.failures:
            print(f"  {failure}")
    print(f"{tally.passed} passed, {tally.failed} failed")
    sys.stdout.flush()
    return 1 if tally.failed or not tally.passed else 0
