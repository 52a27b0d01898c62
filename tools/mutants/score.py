"""The results of all mutants that were tried, the verdicts on survivors, and the table of both."""
import collections
import json
import math
import os

from .operators import FOLDERS

KEY = ("file", "text", "nth", "operator", "column", "new")
GOALS = {"ops": 95, "nn": 95, "optim": 95, "parallel": 95, "checkpoint": 95}  # percent; 90 elsewhere
BEGIN, END = "<!-- mutants: written by tools/mutate.py report -->", "<!-- mutants: end -->"


class Results:
    """One row per mutant, in a file that is sorted and rewritten as a whole, so that a commit shows what changed."""

    def __init__(self, path):
        self.path, self.rows = path, {}
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                row = json.loads(line)
                self.rows[tuple(row[k] for k in KEY)] = row

    def add(self, mutant, row):
        head = {"id": mutant.id, **{k: getattr(mutant, k) for k in (*KEY, "old")}}
        self.rows[mutant.key] = {**head, **row}
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_suffix(".new")
        new.write_text("".join(json.dumps(self.rows[key]) + "\n" for key in sorted(self.rows)))
        os.replace(new, self.path)


def interval(hits, count):
    """Wilson's interval at 95 % of a share, in percent."""
    if count == 0:
        return 0.0, 100.0
    z, p = 1.96, hits / count
    middle, half = p + z * z / (2 * count), z * math.sqrt(p * (1 - p) / count + z * z / (4 * count * count))
    return 100 * (middle - half) / (1 + z * z / count), 100 * (middle + half) / (1 + z * z / count)


def verdicts(path):
    """Returns {id: verdict} of the file of verdicts, which gives each a reason."""
    if not path.exists():
        return {}
    import tomllib  # pylint: disable=import-outside-toplevel; Python 3.11 has it
    result = {v["id"]: v for v in tomllib.loads(path.read_text()).get("mutant", [])}
    for verdict in result.values():
        if verdict["verdict"] not in ("equivalent", "assertion", "dead") or not verdict.get("why"):
            raise SystemExit(f"{path}: {verdict['id']}: verdict is equivalent, assertion or dead, and `why` says why")
    return result


def is_open(row, given):
    """Returns whether a mutant has survived, and no verdict says that it computes the same."""
    return row["status"] in ("survived", "uncovered") and given.get(row["id"], {}).get("verdict") != "equivalent"


def table(rows, given):
    """Returns the Markdown table of the rows of mutants whose lines are still there."""
    counts = collections.defaultdict(collections.Counter)
    for row in rows:
        is_equivalent = row["status"] in ("survived", "uncovered") and not is_open(row, given)
        counts[row["file"].split("/")[1]]["by hand" if is_equivalent else row["status"]] += 1
    lines = ["| folder | mutants | killed | survived | no test runs the line | equivalent: same code, by hand | do not compile | "
             "score (95 % interval) | goal |", "|---|---|---|---|---|---|---|---|---|"]
    total = collections.Counter()
    for folder in [f for f in FOLDERS if f in counts] + ["all"]:
        c = counts[folder] if folder != "all" else total
        total.update(c) if folder != "all" else None
        valid = c["killed"] + c["survived"] + c["uncovered"]
        low, high = interval(c["killed"], valid)
        score = f"{100 * c['killed'] / valid:.0f} % ({low:.0f} to {high:.0f} %)" if valid else "–"
        goal = f"{GOALS.get(folder, 90)} %" if folder != "all" else ""
        lines.append(f"| {folder} | {valid} | {c['killed']} | {c['survived']} | {c['uncovered']} | {c['equivalent']}, {c['by hand']} | "
                     f"{c['unbuildable']} | {score} | {goal} |")
    return "\n".join(lines)


def write_table(page, text):
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")
