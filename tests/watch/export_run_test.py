#!/usr/bin/env python3
"""Tests that `ingot export-run --wandb --follow` sends every step once, whatever is stopped, killed or resumed in between. A module
that only writes down what it gets stands for wandb."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tools/export_run.py"
FAKE = '''
import json, os
def write(**what):
    with open(os.environ["FAKE_WANDB"], "a") as file:
        file.write(json.dumps(what) + "\\n")
class Table:
    def __init__(self, columns, data):
        self.data = data
class Run:
    summary = {}
    def log(self, values, step=None):
        if step is not None:
            write(step=step, **values)
    def finish(self, exit_code):
        write(finish=exit_code, status=self.summary["run/status"])
def init(**settings):
    write(init=settings["id"], resume=settings["resume"])
    return Run()
'''


class Follow(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.run_folder = self.folder / "run"
        self.run_folder.mkdir()
        (self.folder / "wandb.py").write_text(FAKE)
        self.arrived = self.folder / "arrived.jsonl"
        self.metrics = self.run_folder / "metrics.jsonl"
        self.status("running")

    def status(self, status):
        (self.run_folder / "run.json").write_text(json.dumps({"status": status}))

    def follow(self, *more):
        environment = dict(os.environ, PYTHONPATH=str(self.folder), FAKE_WANDB=str(self.arrived))
        child = subprocess.Popen([sys.executable, SCRIPT, "--wandb", "--follow", *more, "--", self.run_folder], env=environment,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                 # A shell that runs this test in the background has Ctrl-C ignored.
                                 preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        self.addCleanup(child.communicate)
        self.addCleanup(child.kill)
        return child

    def write(self, *steps, end="\n"):
        with open(self.metrics, "a") as file:
            for step in steps:
                file.write(json.dumps({"step": step, "loss": 10.0 / step}) + end)

    def rows(self):
        return [json.loads(line) for line in self.arrived.read_text().splitlines()] if self.arrived.exists() else []

    def steps(self):
        return [row["step"] for row in self.rows() if "step" in row]

    def wait_for(self, step):
        limit = time.monotonic() + 30
        while not self.steps() or self.steps()[-1] < step:
            self.assertLess(time.monotonic(), limit, f"step {step} did not arrive, only {self.steps()}")
            time.sleep(0.05)

    def test_steps_arrive_while_the_run_continues_and_each_of_them_once(self):
        child = self.follow()
        time.sleep(0.5)  # the run has no step yet
        self.write(1, 2, 3)
        self.wait_for(2)  # the third may still get its evaluation
        with open(self.metrics, "a") as file:
            file.write('{"step": 3, "val_loss": 2.5}\n{"step": 4, "lo')
        self.wait_for(2)
        with open(self.metrics, "a") as file:
            file.write('ss": 2.25}\n')
        self.write(5)
        self.wait_for(4)
        child.send_signal(signal.SIGKILL)
        child.wait()
        # The run goes back to step 3 and writes its file anew, while one follower is killed and another begins.
        self.metrics.unlink()
        self.write(1, 2, 3, 4, 5, 6)
        child = self.follow()
        self.wait_for(5)
        before = self.metrics.read_text().splitlines(keepends=True)
        self.metrics.write_text("".join(before[:3]))  # cut in place
        time.sleep(1.5)
        self.write(4, 5, 6, 7, 8)
        self.wait_for(7)
        child.send_signal(signal.SIGINT)
        self.assertEqual(child.wait(30), 75)
        self.write(9)
        self.status("completed")
        child = self.follow()
        output, errors = child.communicate(timeout=30)
        self.assertEqual((child.returncode, errors), (0, ""))
        self.assertIn("exported", output)
        self.assertEqual(self.steps(), list(range(1, 10)))
        rows = {row["step"]: row for row in self.rows() if "step" in row}
        self.assertEqual((rows[3]["val_loss"], rows[4]["loss"], rows[9]["loss"]), (2.5, 2.25, 10 / 9))
        begun = [(row["init"], row["resume"]) for row in self.rows() if "init" in row]
        self.assertEqual(len(begun), 3)
        self.assertEqual(len(set(begun)), 1)
        self.assertEqual(self.rows()[-1], {"finish": 0, "status": "completed"})

    def test_an_interrupted_run_that_is_started_again_is_followed(self):
        self.write(1, 2)
        child = self.follow()
        self.wait_for(1)
        self.status("interrupted")
        time.sleep(1.5)
        self.assertIsNone(child.poll())
        self.status("running")
        self.write(3, 4)
        self.wait_for(3)
        self.status("completed")
        self.assertEqual(child.wait(30), 0)
        self.assertEqual(self.steps(), [1, 2, 3, 4])

    def test_what_cannot_be_followed_is_refused(self):
        self.write(1)
        child = self.follow("--params")
        self.assertIn("when the run has ended", child.communicate(timeout=30)[1])
        self.assertEqual(child.returncode, 2)
        (self.run_folder / "wandb.json").write_text("{")
        child = self.follow()
        self.assertIn("is damaged", child.communicate(timeout=30)[1])


if __name__ == "__main__":
    unittest.main()
