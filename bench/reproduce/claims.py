#!/usr/bin/env python3
"""Writes docs/claims.md: a verdict for each of the 83 numeric claims of claims.toml, computed from results/*.json.

  bench/reproduce/claims.py            writes the page
  bench/reproduce/claims.py --check    exits with 1 if the page is not what the results say
  bench/reproduce/claims.py --stale    lists experiments without results, or with results of other kernels, and ends

A part of a claim is decided by a rule on figures (claims.toml), by arithmetic (exact.py), or by a test; the verdict of
the claim follows from those of its parts (stats.together). --results and --page take other places.
"""

import argparse
import math
import statistics
import sys
import tomllib
from pathlib import Path

import exact
import results

sys.path.insert(0, str(results.ROOT / "bench"))
import stats  # noqa: E402
from stats import Interval  # noqa: E402

CLAIMS = results.ROOT / "bench/reproduce/claims.toml"
PAGE = results.ROOT / "docs/claims.md"
NEEDS_GPU, NOT_MEASURED = "needs a GPU", "not measured"
VERDICTS = (stats.HOLDS, stats.IN_PART, stats.REFUTED, stats.NOT_TOLD_APART, NEEDS_GPU, NOT_MEASURED)
STALE = " (stale)"
LEAST_SEEDS, LEAST_SEEDS_OF_MINUTES = 8, 5  # of runs that take seconds, and minutes
DOCUMENTS = ("Efficient Large-Scale Language Model Training via Hybrid Precision and Architectural Optimizations",
             "Transformer Deep Dive: Part 5 - Training Improvements", "How to Train an LLM: Part 2")
PROGRAMS = {"plans": "plans.py", "checkpointing": "checkpointing.py", "times": "times.py", "head": "times.py", "messages": "messages.py", "loader": "loader.py",
            "exact_tests": "exact_tests.py", "twins": "twins.py"}  # the others are experiments.py NAME


class Missing(Exception):
    """The figures of a part are not there yet."""


def command_of(name):
    script = PROGRAMS.get(name)
    return f"bench/reproduce/{script}" if script else f"bench/reproduce/experiments.py {name}"


class Measured:
    """The results in a folder. An arm with fewer seeds than the least number is not judged."""

    def __init__(self, folder, least_seeds=None):
        self.folder, self.least_seeds, self.known = folder, least_seeds, {}

    def result(self, name):
        if name not in self.known:
            self.known[name] = results.load(name, self.folder)
        if self.known[name] is None:
            raise Missing
        return self.known[name]

    def figure(self, name, arm, figure):
        found = self.result(name)["arms"].get(arm, {}).get(figure)
        least = self.least_seeds or (LEAST_SEEDS_OF_MINUTES if name == "twins" else LEAST_SEEDS)
        is_sample = found is not None and figure != "ms" and not {"exact", "interval"} & set(found)
        if found is None or is_sample and len(found) < least:
            raise Missing
        return found


def one_figure(found, confidence=stats.CONFIDENCE):
    """Returns the interval of a figure of one arm."""
    if "exact" in found:
        return Interval(found["exact"], found["exact"], found["exact"])
    if "interval" in found:
        return Interval(*found["interval"])
    return stats.mean_interval(list(found.values()), confidence)


def compared(a, b, combine, confidence=stats.CONFIDENCE):
    """Returns the interval of combine(a, b), seed by seed, for the seeds that both arms have."""
    if "exact" in a:
        value = combine(a["exact"], b["exact"])
        return Interval(value, value, value)
    return stats.mean_interval([combine(a[s], b[s]) for s in sorted(set(a) & set(b))], confidence)


def less(x, y):
    return 0.0 if x == y else x - y


def least_of(part, b):
    least = part["least"]
    if not isinstance(least, str):
        return least
    finite = [x for x in b.values() if math.isfinite(x)]
    return float(least.rstrip(" %")) / 100 * statistics.fmean(finite) if finite else 0.0


def number(x):
    return f"{x:+.4g}" if abs(x) < 1e5 else f"{x:.4g}"


def shown(interval):
    return f"{number(interval.value)} [{number(interval.low)}, {number(interval.high)}]"


def judge_part(part, measured):
    """Returns a part's text, its verdict, and the smallest effect that counts."""
    rule, figure = part["rule"], part.get("figure", "loss")
    said = figure.replace("_", " ")
    a = measured.figure(part["from"], part["a"], figure) if rule != "time" else None
    b = measured.figure(part["from"], part["b"], figure) if "b" in part and rule != "time" else None
    if rule in ("lower", "higher"):
        least, sign = least_of(part, b), -1 if rule == "lower" else 1
        change = compared(a, b, less)
        verdict = stats.exceeds(change if sign > 0 else -change, least)
        return f"{said} of {part['a']} less {part['b']}: {shown(change)}", verdict, f"{sign * least:+.3g}"
    if rule in ("as_low", "same"):
        least = least_of(part, b)
        change = compared(a, b, less, 0.9)
        verdict = stats.is_below(change, least) if rule == "as_low" else stats.is_within(change, -least, least)
        return (f"{said} of {part['a']} less {part['b']}, 90 %: {shown(change)}", verdict,
                f"{'+' if rule == 'as_low' else '±'}{least:.3g}")
    low, high = part["range"]
    if rule == "time":
        rounds = [list(measured.figure(part["from"], part[arm], "ms").values()) for arm in ("b", "a", "null")]
        if min(map(len, rounds)) < stats.LEAST_ROUNDS:
            raise Missing
        found = stats.change_of_time(*(one[:min(map(len, rounds))] for one in rounds))
        text = f"time of {part['a']} over {part['b']}, less 1"
    elif rule == "ratio":
        found, text = compared(a, b, lambda x, y: x / y, 0.9), f"{said} of {part['a']} over {part['b']}"
    elif rule == "difference":
        found, text = compared(a, b, less, 0.9), f"{said} of {part['a']} less {part['b']}"
    else:
        found, text = one_figure(a), f"{said} of {part['a']}"
    return f"{text}: {shown(found)}", stats.is_within(found, low, high), f"{low:g} to {high:g}"


class Row:
    """One claim: its verdict, its parts, and the results that they come from."""

    def __init__(self, claim, measured):
        self.claim = claim
        self.parts = []    # (text, verdict, smallest effect)
        self.sources = []  # names of results
        self.missing = []  # commands that would decide a part
        if "exact" in claim:
            self.parts += [(text, verdict, "") for text, verdict in getattr(exact, claim["exact"])()]
        for part in claim.get("parts", []):
            self.add(part["from"], lambda part=part: judge_part(part, measured))
        for test in claim.get("test", []):
            self.add("exact_tests", lambda test=test: self.judge_test(test, measured))

    def add(self, name, judge):
        try:
            self.parts.append(judge())
            if name not in self.sources:
                self.sources.append(name)
        except Missing:
            if command_of(name) not in self.missing:
                self.missing.append(command_of(name))

    @staticmethod
    def judge_test(test, measured):
        passed = measured.figure("exact_tests", test, "passed")["exact"]
        return f"the test {test} {'passes' if passed else 'fails'}", stats.HOLDS if passed else stats.REFUTED, "exact"

    @property
    def verdict(self):
        decided = stats.together(verdict for _, verdict, _ in self.parts) if self.parts else None
        if self.missing:
            return NOT_MEASURED
        if "gpu" in self.claim and decided != stats.REFUTED:  # a refuted part needs no GPU any more
            return NEEDS_GPU
        return decided

    @property
    def command(self):
        commands = [*(command_of(name) for name in self.sources), *self.missing]
        if "exact" in self.claim or not commands:
            commands.insert(0, "bench/reproduce/claims.py")
        if self.verdict == NEEDS_GPU:
            row = self.claim["gpu"]
            return row if row.startswith("none") else f"`bench/gpu/run.sh`, row {row}"
        return "; ".join(f"`{command}`" for command in commands)

    def cells(self, measured, marks_stale):
        texts = "<br>".join(f"{text}: *{verdict}*" if len(self.parts) > 1 else text for text, verdict, _ in self.parts)
        least = "<br>".join(dict.fromkeys(effect for *_, effect in self.parts if effect)) or "exact"
        origins = []
        for name in self.sources:
            result = measured.result(name)
            stale = STALE if marks_stale and results.is_stale(result) else ""
            origins.append(f"{result['commit']}{stale}, {result['date']}, {result['machine']}")
        return [self.claim["id"], self.claim["place"], self.claim["says"], texts or "–", least if self.parts else "–",
                f"**{self.verdict}**", self.command, "<br>".join(dict.fromkeys(origins)) or "–"]


def table(header, rows):
    return "\n".join(["| " + " | ".join(header) + " |", "|" + "---|" * len(header),
                      *("| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows)])


def arms_table(name, result):
    """Returns the arms of an experiment with the mean and the scatter of each figure over its seeds."""
    figures = list(dict.fromkeys(figure for arm in result["arms"].values() for figure in arm))
    rows = []
    for arm, found in result["arms"].items():
        cells = []
        for figure in figures:
            values = found.get(figure, {})
            seeds = [v for k, v in values.items() if k not in ("exact", "interval")]
            if not values:
                cells.append("")
            elif not seeds:
                cells.append(f"{one_figure(values).value:.4g}")
            else:
                lost = sum(not math.isfinite(v) for v in seeds)
                kept = [v for v in seeds if math.isfinite(v)] or [math.inf]
                spread = statistics.stdev(kept) if len(kept) > 1 else 0
                cells.append(f"{statistics.fmean(kept):.5g} ± {spread:.2g} ({len(seeds)})" + (f", {lost} diverged" if lost else ""))
        chosen = ", ".join(f"{key.split('.')[-1]} {value:g}" for key, value in result.get("tuned", {}).get(arm, {}).items())
        rows.append([arm, chosen, *cells])
    has_choice = any(row[1] for row in rows)
    header = ["arm", *(["chosen"] if has_choice else []), *(figure.replace("_", " ") for figure in figures)]
    return f"### {name}\n\n`{command_of(name)}`, {result['commit']}, {result['date']}, {result['machine']}\n\n" + table(
        header, rows if has_choice else [[row[0], *row[2:]] for row in rows])


def page(claims, measured, marks_stale=True):
    """Returns the text of docs/claims.md."""
    rows = [Row(claim, measured) for claim in claims]
    counts = [[verdict, sum(row.verdict == verdict for row in rows)] for verdict in VERDICTS]
    parts = ["# Claims\n\n`bench/reproduce/claims.py` writes this page from bench/reproduce/claims.toml and results/*.json; no verdict is "
             "written by hand.\n\n"
             "Three documents that Ingot implements make 83 numeric claims. A row has the claim in our words, our figure with its 95 % "
             "interval in brackets (90 % where two one-sided tests decide), the smallest effect that counts, and the verdict that "
             "follows from them (bench/stats.py): *holds*, *refuted*, *in part* (some parts hold), *not told apart* (the interval "
             "excludes neither), *needs a GPU*, or *not measured* (the command is there, its results are not). Where the documents "
             "contradict themselves, [specification-notes.md](specification-notes.md) says it.\n\n"
             "Training runs on a processor have 0.2M parameters and 200 steps, and times are those of a processor: they can refute a "
             "mechanism, not a figure that was measured at scale. Differences are taken seed by seed; rates and decays are chosen for "
             "each arm on seeds that are not judged. A result is stale if the sources of the CPU that it depends on have changed since. An experiment needs 8 seeds, one whose runs take minutes 5.\n\n"
             "`bench/reproduce/all.py --budget 2h` measures what is missing or stale, and continues where it stopped.\n\n"
             + table(["verdict", "claims"], [*counts, ["sum", len(rows)]])]
    header = ["", "place", "claim", "here", "smallest effect", "verdict", "command", "commit, date, machine"]
    for number_, title in enumerate(DOCUMENTS, 1):
        own = [row.cells(measured, marks_stale) for row in rows if row.claim["id"].startswith(f"S{number_}-")]
        parts.append(f"## {number_}. {title}\n\n" + table(header, own))
    parts.append("## Figures of the arms\n\nMean ± standard deviation over seeds, in parentheses their number; figures without ± are "
                 "exact, or medians of rounds.")
    for name in dict.fromkeys(part["from"] for claim in claims for part in claim.get("parts", [])):
        result = results.load(name, measured.folder)
        if result:
            parts.append(arms_table(name, result))
    return "\n\n".join(parts) + "\n"


def names_of(claims):
    names = [part["from"] for claim in claims for part in claim.get("parts", [])]
    return list(dict.fromkeys([*names, "exact_tests"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--stale", action="store_true")
    parser.add_argument("--results", type=Path, default=results.FOLDER)
    parser.add_argument("--least-seeds", type=int, help="for a try: judge arms that have as many")
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args()
    claims = tomllib.loads(CLAIMS.read_text())["claim"]
    if options.stale:
        for name in names_of(claims):
            found = results.load(name, options.results)
            if found is None or results.is_stale(found):
                print(f"{'no results' if found is None else 'stale'}: {command_of(name)}")
        return 0
    measured = Measured(options.results, options.least_seeds)
    if options.check:
        # Whether a result is stale changes with other commits, so the mark is not compared.
        wanted, found = page(claims, measured, marks_stale=False), options.page.read_text().replace(STALE, "")
        if wanted != found:
            lines = [f"expected {w}\nfound    {f}" for w, f in zip(wanted.splitlines(), found.splitlines()) if w != f]
            print(f"{options.page}: it is not what the results say; run bench/reproduce/claims.py. The first difference:\n"
                  + (lines or ["one of the two is longer"])[0])
            return 1
        return 0
    options.page.write_text(page(claims, measured))
    return 0


if __name__ == "__main__":
    sys.exit(main())
