#!/usr/bin/env python3
"""Tests of testing/runner.py: what a failure leaves out, that each way to fail is counted once and ends, and signals."""
import contextlib
import io
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from testing import runner
from testing.runner import Job

SCRIPTS = pathlib.Path(__file__).resolve().parent

# runs until a signal comes; the process of its job prints its number first
ENDLESS = """
import pathlib, sys
from testing import runner
runner.LOGS = pathlib.Path(sys.argv[1])
command = ["sh", "-c", f"echo $$ > {sys.argv[1]}/number; exec sleep 60"]
sys.exit(runner.run_all([runner.Job("s", "s", lambda: runner.check("c", command, "s"))], 2))
"""


class Runner(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name, value in (("LOGS", self.folder), ("tally", runner.Tally())):
            self.addCleanup(setattr, runner, name, getattr(runner, name))
            setattr(runner, name, value)

    def run_jobs(self, *rows, cores=2):
        """Rows of (name, body, names of needs); returns (exit status, failures)."""
        jobs = [Job("stage", name, body, needs) for name, body, needs in rows]
        with contextlib.redirect_stdout(io.StringIO()):
            status = runner.run_all(jobs, cores)
        return status, sorted(runner.tally.failures)

    def test_jobs_run_after_their_needs(self):
        for cores in (1, 2, 8):
            order = []

            def body(name, order=order):
                return lambda: (order.append(name), runner.tally.ok())

            self.assertEqual(self.run_jobs(("c", body("c"), ["b"]), ("b", body("b"), ["a"]), ("a", body("a"), []), cores=cores), (0, []))
            self.assertEqual(order, ["a", "b", "c"])

    def test_jobs_whose_need_failed_do_not_run(self):
        ran = []
        status, failures = self.run_jobs(("a", lambda: runner.check("false", ["false"], "a"), []), ("b", lambda: ran.append("b"), ["a"]),
                                         ("c", lambda: ran.append("c"), ["b"]))
        self.assertEqual((status, ran, len(failures)), (1, [], 3))
        self.assertIn("b: not run, because a failed", failures)

    def test_each_way_to_fail_ends_the_job(self):
        def bad_value():
            raise ValueError("x")

        status, failures = self.run_jobs(("value", bad_value, []), ("exit", lambda: sys.exit("y"), []),
                                         ("tool", lambda: runner.check("tool", ["no-such-tool"], "tool"), []))
        self.assertEqual((status, failures[0], failures[2]), (1, "exit: SystemExit: y", "value: ValueError: x"))
        self.assertTrue(failures[1].startswith("tool (exit 127;"))

    def test_signals_end_the_processes_of_jobs(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            told = self.folder / "number"
            process = subprocess.Popen([sys.executable, "-c", ENDLESS, self.folder], cwd=SCRIPTS, stdout=subprocess.PIPE, text=True,
                                       preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
            until = time.monotonic() + 30
            while not (told.is_file() and told.read_text().endswith("\n")) and time.monotonic() < until:
                time.sleep(0.02)
            process.send_signal(number)
            output, _ = process.communicate(timeout=30)
            self.assertEqual((process.returncode, output), (130, "interrupted\n"))
            self.assert_ends(int(told.read_text()))
            told.unlink()

    def assert_ends(self, process_number):
        until, state = time.monotonic() + 30, pathlib.Path(f"/proc/{process_number}/stat")
        while time.monotonic() < until:
            try:
                os.kill(process_number, 0)
                if state.exists() and state.read_text().rsplit(")", 1)[1].split()[0] == "Z":
                    return  # it ended; nobody has asked how yet
            except OSError:
                return
            time.sleep(0.02)
        self.fail("its process goes on")


if __name__ == "__main__":
    unittest.main()
