#!/usr/bin/env python3
"""Tests the statistics and the file of bench/history.py. Nothing is timed: ratios are drawn from fixed seeds."""
import importlib.util
import json
import math
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "bench/history.py"
spec = importlib.util.spec_from_file_location("history", SCRIPT)
history = importlib.util.module_from_spec(spec)
sys.dont_write_bytecode = True
sys.path.insert(0, str(SCRIPT.parent))  # for stats.py
spec.loader.exec_module(history)

TRIALS = 1000


def draw(generator, centre, noise, turns):
    return [centre * math.exp(generator.gauss(0, noise)) for _ in range(turns)]


def verdicts(seed, slowdown, noise=0.01, null=1.0, null_noise=0.01, turns=9):
    """Returns how often each verdict falls in TRIALS comparisons."""
    generator = random.Random(seed)
    found = [history.verdict(draw(generator, slowdown, noise, turns), draw(generator, null, null_noise, turns))
             for _ in range(TRIALS)]
    return {name: found.count(name) for name in history.EXIT_CODES}


def at_most(probability):
    """Returns what a count of TRIALS exceeds in one case of 30,000 (four standard deviations)."""
    return TRIALS * probability + 4 * math.sqrt(TRIALS * probability * (1 - probability))


class Statistics(unittest.TestCase):
    def test_equal_commits_show_no_slowdown(self):
        found = verdicts(2, 1.0)
        self.assertLess(found["slowdown"], at_most(0.025))
        self.assertGreater(found["no slowdown"], 0.95 * TRIALS)

    def test_a_slowdown_of_5_percent_is_not_denied(self):
        found = verdicts(3, 1.05)
        self.assertLess(found["no slowdown"], at_most(0.025))
        self.assertGreater(found["slowdown"], 0.9 * TRIALS)

    def test_a_faster_commit_shows_no_slowdown(self):
        self.assertEqual(verdicts(4, 0.9)["no slowdown"], TRIALS)

    def test_noise_of_10_percent_is_undecided_rather_than_wrong(self):
        for null_noise in (0.01, 0.1):
            found = verdicts(5, 1.0, noise=0.1, null_noise=null_noise)
            self.assertLess(found["slowdown"], at_most(0.025))
            self.assertGreater(found["undecided"], 0.5 * TRIALS)

    def test_a_machine_that_changes_by_itself_decides_nothing(self):
        for null in (1.07, 1 / 1.07):
            self.assertGreater(verdicts(6, 1.1, null=null)["undecided"], 0.95 * TRIALS)


class File(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "a/history.jsonl"
        self.row = {"time": "2026-01-01T00:00:00+00:00", "commit": "0123456789abcdef", "subject": "Faster",
                    "machine": {"cpu": "A", "cores": 2, "compiler": "g++"}, "preset": "p", "steps": 3, "set": ["a=1"],
                    "step_ms": 12.5, "cpu_ms": 20.0, "runs": []}

    def script(self, *words):
        return subprocess.run([sys.executable, SCRIPT, "--file", self.path, *words], capture_output=True, text=True,
                              check=False)

    def test_lines_are_added_and_shown_per_machine(self):
        other = dict(self.row, machine={"cpu": "B", "cores": 4, "compiler": "g++"}, step_ms=7.25)
        history.append(self.path, [self.row])
        history.append(self.path, [other])
        done = self.script("show")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), 4)
        self.assertRegex(lines[0], "^A, 2 cores, g[+][+]: p, 3 steps a=1$")
        self.assertRegex(lines[1], "0123456789ab +12[.]50 ms  Faster$")
        self.assertRegex(lines[3], " 7[.]25 ms")

    def test_a_broken_line_is_named(self):
        history.append(self.path, [self.row])
        for broken in ("{", "[]", "3", json.dumps({"commit": "a"})):
            text = json.dumps(self.row) + "\n" + broken + "\n"
            self.path.write_text(text, encoding="utf-8")
            for words in (["show"], ["compare", "HEAD", "HEAD"]):
                done = self.script(*words)
                self.assertEqual(done.returncode, history.ERROR)
                self.assertIn(f"{self.path}:2: not a line of a history", done.stderr)
            self.assertEqual(self.path.read_text(encoding="utf-8"), text)

    def test_wrong_arguments_are_refused_before_a_build(self):
        done = self.script("compare", "HEAD", "HEAD", "--turns", "5")
        self.assertEqual(done.returncode, history.ERROR)
        self.assertIn("--turns must be at least 6", done.stderr)
        done = self.script("compare", "no-such-commit", "HEAD")
        self.assertEqual(done.returncode, history.ERROR)
        self.assertFalse(self.path.exists())


if __name__ == "__main__":
    unittest.main()
