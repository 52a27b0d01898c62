#!/usr/bin/env python3
"""Tests that bench/reproduce/claims.py can say every verdict about every claim, by results that are made up, and that
docs/claims.md is what the committed results say. Nothing is trained or timed."""
import inspect
import json
import math
import pathlib
import sys
import tempfile
import tomllib
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path[:0] = [str(ROOT / "bench/reproduce"), str(ROOT / "bench")]
import all as all_claims  # noqa: E402
import claims  # noqa: E402
import exact  # noqa: E402
import experiments  # noqa: E402
import loader  # noqa: E402
import messages  # noqa: E402
import plans  # noqa: E402
import times  # noqa: E402
import twins  # noqa: E402
from stats import HOLDS, IN_PART, NOT_TOLD_APART, REFUTED  # noqa: E402

CLAIMS = tomllib.loads(claims.CLAIMS.read_text())["claim"]
SEEDS = [str(seed) for seed in range(1, 9)]
WITHOUT_NOISE = ("plans", "head")  # their figures are no samples


def sample(centre, scatter):
    """Returns eight figures with this mean; the first is the lowest."""
    return {seed: centre + scatter * (2 * i / 7 - 1) for i, seed in enumerate(SEEDS)}


def made_up(part, verdict):
    """Returns arms from which the part must get the verdict."""
    figure = part.get("figure", "loss")
    if "least" in part:
        least = 4 * float(part["least"].rstrip(" %")) / 100 if isinstance(part["least"], str) else part["least"]
        is_better = part["rule"] in ("lower", "higher")
        sign = -1 if part["rule"] == "lower" else 1
        change = {HOLDS: 2 if is_better else 0, REFUTED: 0 if is_better else 3, NOT_TOLD_APART: 0.9}[verdict] * least * sign
        base, scatter = 4.0, 10 * least if verdict == NOT_TOLD_APART else 0.01 * least
        return {part["a"]: {figure: sample(base + change, scatter)}, part["b"]: {figure: sample(base, 0)}}
    low, high = part["range"]
    centre = {HOLDS: (low + high) / 2, REFUTED: 2 * high - low + 1, NOT_TOLD_APART: (low + high) / 2}[verdict]
    scatter = 10 * (high - low) + 1 if verdict == NOT_TOLD_APART else 0
    if part["rule"] == "time":
        base = {seed: 1.0 for seed in SEEDS}
        spread = {seed: 1 + x for seed, x in sample(centre, scatter).items()}
        return {part["b"]: {"ms": base}, part["a"]: {"ms": spread}, part["null"]: {"ms": base}}
    values = {"exact": centre} if part["from"] in WITHOUT_NOISE else sample(centre, scatter)
    one = 1.0 if part["rule"] == "ratio" else 0.0
    arms = {part["a"]: {figure: values}}
    if "b" in part:
        arms[part["b"]] = {figure: {key: one for key in values}}
    return arms


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def row(self, claim, **arms_of):
        for name, arms in arms_of.items():
            (self.folder / f"{name}.json").write_text(json.dumps({"arms": arms, "commit": "", "date": "", "machine": "", "sources": {}}))
        return claims.Row(claim, claims.Measured(self.folder))


class Verdicts(Folder):
    def test_every_part_of_every_claim_can_have_every_verdict(self):
        for claim in CLAIMS:
            for part in claim.get("parts", []):
                can = [HOLDS, REFUTED] + ([] if part["from"] in WITHOUT_NOISE else [NOT_TOLD_APART])
                for verdict in can:
                    with self.subTest(claim=claim["id"], part=part, wanted=verdict):
                        alone = {"id": claim["id"], "parts": [part]}
                        self.assertEqual(self.row(alone, **{part["from"]: made_up(part, verdict)}).verdict, verdict)

    def test_a_far_lower_arm_is_as_low_but_not_the_same(self):
        for rule, verdict in (("as_low", HOLDS), ("same", REFUTED)):
            part = {"from": "x", "rule": rule, "a": "a", "b": "b", "least": 0.1}
            arms = {"a": {"loss": sample(3, 0.01)}, "b": {"loss": sample(4, 0.01)}}
            self.assertEqual(self.row({"id": "S1-1", "parts": [part]}, x=arms).verdict, verdict)

    def test_a_part_without_its_figures_is_not_measured(self):
        for claim in CLAIMS:
            if "parts" in claim:
                row = self.row(claim)
                self.assertEqual(row.verdict, claims.NOT_MEASURED, claim["id"])
                self.assertIn("bench/reproduce/", row.command)

    def test_recipes_that_diverge_refute_that_they_train(self):
        claim = next(c for c in CLAIMS if c["id"] == "S3-16")
        arms = {part["a"]: {"loss": {seed: math.inf for seed in SEEDS}} for part in claim["parts"]}
        self.assertEqual(self.row(claim, fp8_linears={**arms, "bf16": {"loss": sample(4, 0.1)}}).verdict, REFUTED)

    def test_a_claim_with_a_refuted_part_and_one_that_holds_is_true_in_part(self):
        claim = next(c for c in CLAIMS if c["id"] == "S3-24")
        arms = {}
        for part, verdict in zip(claim["parts"], (REFUTED, REFUTED, HOLDS, REFUTED), strict=True):
            for arm, figures in made_up(part, verdict).items():
                arms.setdefault(part["from"], {}).setdefault(arm, {}).update(figures)
        self.assertEqual(self.row(claim, **arms).verdict, IN_PART)

    def test_a_failed_test_refutes(self):
        claim = next(c for c in CLAIMS if c["id"] == "S2-8")
        for passed, verdict in ((1, HOLDS), (0, REFUTED)):
            arms = {test: {"passed": {"exact": passed}} for test in claim["test"]}
            self.assertEqual(self.row(claim, exact_tests=arms).verdict, verdict)

    def test_a_claim_about_a_device_needs_one_unless_arithmetic_refutes_it(self):
        of = {claim["id"]: claims.Row(claim, claims.Measured(self.folder)).verdict for claim in CLAIMS}
        self.assertEqual(of["S3-1"], claims.NEEDS_GPU)
        self.assertEqual(of["S1-1"], REFUTED)

    def test_fewer_seeds_than_eight_are_not_judged(self):
        part = {"from": "x", "rule": "lower", "a": "a", "b": "b", "least": 0.1}
        for count, verdict in ((1, claims.NOT_MEASURED), (7, claims.NOT_MEASURED), (8, HOLDS)):
            arms = {arm: {"loss": dict.fromkeys(SEEDS[:count], loss)} for arm, loss in (("a", 1.0), ("b", 2.0))}
            self.assertEqual(self.row({"id": "S1-1", "parts": [part]}, x=arms).verdict, verdict)


class Table(unittest.TestCase):
    def test_has_the_83_claims(self):
        wanted = [f"S1-{i}" for i in range(1, 25)] + [f"S2-{i}" for i in range(1, 31)] + [f"S3-{i}" for i in range(1, 30)]
        self.assertEqual([claim["id"] for claim in CLAIMS], wanted)

    def test_every_claim_says_what_decides_it(self):
        for claim in CLAIMS:
            self.assertTrue({"exact", "test", "parts", "gpu"} & set(claim), claim["id"])
            self.assertTrue({"place", "says"} < set(claim), claim["id"])

    def test_arms_and_figures_are_those_of_the_scripts(self):
        of_times = [name for base, (_, other, _) in times.PAIRS.items() for name in (base, other, f"{base} again")]
        for claim in CLAIMS:
            for part in claim.get("parts", []):
                arms = [part[key] for key in ("a", "b", "null") if key in part]
                name = part["from"]
                if name in experiments.EXPERIMENTS:
                    known, figures = experiments.EXPERIMENTS[name][:2]
                    self.assertIn(part.get("figure", "loss"), figures, claim["id"])
                else:
                    known = {"plans": plans.ARMS, "times": of_times, "head": ("dense", "chunked"),
                             "twins": (twins.WORST,), "messages": messages.ARMS, "loader": loader.ARMS,
                             "checkpointing": ("norms", "attention", "mlp", "block", "sqrt")}[name]
                self.assertLessEqual(set(arms), set(known), claim["id"])

    def test_every_function_of_exact_is_a_claims(self):
        used = {claim["exact"] for claim in CLAIMS if "exact" in claim}
        public = {name for name, f in inspect.getmembers(exact, inspect.isfunction) if not inspect.signature(f).parameters}
        self.assertEqual(used, public)

    def test_rows_of_the_gpu_script_exist(self):
        text = (ROOT / "bench/gpu/rows.py").read_text()
        for claim in CLAIMS:
            for row in claim.get("gpu", "none").replace(";", ",").split(","):
                name = row.strip()
                if not name.startswith("none"):
                    stem = name.rsplit("-", 1)[0] if name.startswith(("ranks-", "muon-")) else name
                    self.assertTrue(f'"{name}"' in text or f'f"{stem.split("-")[0]}-{{' in text, name)


class Page(Folder):
    def test_the_page_is_what_the_results_say(self):
        wanted = claims.page(CLAIMS, claims.Measured(claims.results.FOLDER), marks_stale=False)
        self.assertEqual(claims.PAGE.read_text().replace(claims.STALE, ""), wanted, "run bench/reproduce/claims.py")

    def test_results_of_other_sources_are_stale(self):
        now = claims.results.sources(["bench"])
        if not now:
            self.skipTest("no git repository")
        self.assertFalse(claims.results.is_stale({"sources": now}))
        self.assertTrue(claims.results.is_stale({"sources": {"bench": "another"}}))

    def test_a_comment_makes_no_result_stale(self):
        code = claims.results.code_of
        self.assertEqual(code("/* two\nlines */\n\nint a = 1;  // one\n"), "int a = 1;")
        self.assertNotEqual(code("int a = 1;"), code("int a = 2;"))
        for literal in ('"http://a"', '"\\"// not a comment"', "'\"'", 'R"(/* not a comment */)"', 'R"x(")" // )x"'):
            self.assertEqual(code(f"f({literal});"), f"f({literal});")

    def test_a_script_that_was_interrupted_is_not_finished(self):
        arms = {"llama-1b-tiny": {"loss": {"1": 4.0}, "loss_spike": {"1": 0.1}}}
        claims.results.save("twins", {"arms": arms, "sources": {}}, self.folder)
        self.assertFalse(all_claims.finished("twins", self.folder))
        arms[twins.WORST] = {figure: dict.fromkeys("12345", 0.1) for figure in twins.RISES}
        claims.results.save("twins", {"arms": arms, "sources": {}}, self.folder)
        self.assertTrue(all_claims.finished("twins", self.folder))

    def test_interrupted_writes_leave_the_old_results(self):
        claims.results.save("x", {"arms": {"a": {"loss": {"1": math.inf}}}}, self.folder)
        self.assertEqual(claims.results.load("x", self.folder)["arms"]["a"]["loss"]["1"], math.inf)
        self.assertEqual([file.name for file in self.folder.iterdir()], ["x.json"])


if __name__ == "__main__":
    unittest.main()
