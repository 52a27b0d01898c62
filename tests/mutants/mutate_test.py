#!/usr/bin/env python3
"""Runs tools/mutate.py on a toy library, whose mutants have known outcomes."""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from mutants.build import Build, can_mount  # pylint: disable=wrong-import-position
from mutants.coverage import Coverage
from mutants.operators import mutants_of, sample
from mutants.score import interval
from mutants.trial import Trial

# line, mutated text, outcome
EXPECTED = [
    ("const int sum = a + b;", "-", "killed"),
    ("return sum > 10 ? 10 : sum;", ">=", "equivalent"),
    ("for (volatile long left = n; left != 0; left = left - 1) steps = steps + 1;", "+", "killed"),
    ("return factors[0] * factors[1];", "/", "survived"),
    ("const std::array<int, 2> factors{a, b};", "1", "unbuildable"),
    ("int untested(int a) { return a - 3; }", "+", "uncovered"),
    ("int twice(int a) { return a * 2; }", "3", "killed" if can_mount() else "uncovered"),
]


class Operators(unittest.TestCase):
    def mistakes(self, line):
        found = mutants_of("ingot/ops/x.cpp", f"{{\n  {line}\n}}\n")
        return {m.apply(f"{{\n  {line}\n}}\n").split("\n")[1].strip() for m in (found[0] if found else [])}

    def test_each_kind(self):
        for line, mutated in (("if (a < b) {", "if (a <= b) {"), ("if (a < b) {", "if (!(a < b)) {"), ("x = a == b;", "x = a != b;"),
                              ("x = a * b;", "x = a / b;"), ("x += 1;", "x -= 1;"), ("x = a && b;", "x = a || b;"),
                              ("f(0);", "f(1);"), ("f(7);", "f(6);"), ("f(0.5f);", "f((2 * 0.5f));"), ("x = -a;", "x = a;"),
                              ("f(true);", "f(false);"), ("x = std::min(a, b);", "x = std::max(a, b);"), ("save(a);", ";"),
                              ("a.b[i] = c;", ";"), ("if (a) return;", "if (a) ;"), ("break;", "continue;"),
                              ('f("1 < 2", 3);', 'f("1 < 2", 4);'), ("x = !a;", "x = a;")):
            self.assertIn(mutated, self.mistakes(line), line)

    def test_texts_comments_and_types_are_left_alone(self):
        for line in ("// a < b", 'fail("a < b", 1);'.replace(", 1", ""), "template <int N = 1>", "static_assert(a == 1);", "#include <a>",
                     'std::string b = "a" + c;', "std::vector<int*> x;", "T&& x;", "return;"):
            self.assertFalse({m for m in self.mistakes(line) if m != ";"}, line)

    def test_order_depends_on_the_line_alone(self):
        text = "".join(f"x{i} = {i} + a;\n" for i in range(1, 30))
        order = [m.text for m in sample(mutants_of("ingot/ops/x.cpp", text), 3)]
        moved = [m.text for m in sample(mutants_of("ingot/ops/x.cpp", "y = b;\n\n" + text), 3) if m.text != "y = b;"]
        self.assertEqual(order, moved)
        self.assertNotEqual(order, [m.text for m in sample(mutants_of("ingot/ops/x.cpp", text), 4)])

    def test_interval(self):
        low, high = interval(90, 100)  # Wilson's, from the literature
        self.assertAlmostEqual(low, 82.56, 1)
        self.assertAlmostEqual(high, 94.48, 1)


class Toy(unittest.TestCase):
    def test_every_outcome_is_the_known_one(self):
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name).resolve() / "toy"
            shutil.copytree(ROOT / "tests/mutants/toy", root)
            build = root / "build/release"
            subprocess.run(["cmake", "-S", root, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                            "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"], check=True, stdout=subprocess.DEVNULL)
            subprocess.run(["cmake", "--build", build], check=True, stdout=subprocess.DEVNULL)
            tool = [sys.executable, ROOT / "tools/mutate.py", "--root", root]
            subprocess.run([*tool, "coverage"], check=True, stdout=subprocess.DEVNULL)
            source = (root / "ingot/ops/toy.cpp").read_text()
            own = Build(root, build)
            trial = Trial(own, Coverage(root / "build/mutants", root, own.tests), root / "build/mutants", 300)
            trial.patience_s = 4  # a busy machine starts a program in less than half of it
            mutants = [m for line in mutants_of("ingot/ops/toy.cpp", source) for m in line]
            for text, new, status in EXPECTED:
                mutant = next(m for m in mutants if m.text == text and m.new == new)
                outcome = trial.try_mutant(mutant, 0)
                self.assertEqual(outcome["status"], status, (mutant, outcome))
                self.assertEqual(outcome.get("how", ""), {"killed": "hang" if "left" in text else "failure"}.get(status, ""), mutant)
            # A second call continues, and neither changes the sources.
            for count in ("2", "4"):
                subprocess.run([*tool, "run", "--folder", "ops", "--count", count], check=True, stdout=subprocess.DEVNULL)
                rows = [json.loads(line) for line in (root / "tests/mutants/results.jsonl").read_text().splitlines()]
                self.assertEqual(sum(r["status"] in ("killed", "survived", "uncovered") for r in rows), int(count))
            self.assertEqual((root / "ingot/ops/toy.cpp").read_text(), source)


if __name__ == "__main__":
    unittest.main()
