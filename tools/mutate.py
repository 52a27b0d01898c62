#!/usr/bin/env python3
"""Plants small mistakes in the sources, one at a time, and asks whether a test notices.

  tools/mutate.py coverage                             records which test programs run which lines (about an hour)
  tools/mutate.py run --mutants 600 [--seed 1] [--folders ops optim] [--budget 2h]
  tools/mutate.py report                               the table of docs/testing.md, and the mutants that survived

`coverage` builds with gcov, `run` with the preset `release` without CUDA, both from a git worktree of HEAD below
build/mutate, so the sources here are never touched. `run` takes a fixed sample of the mutants of all .cpp files in the
folders, made by the rules of PyPI's universalmutator, and goes on where it stopped. A mutant is
  equivalent  if its object code is that of the original,
  killed      if a test program that covers the line fails, and fails once more (programs of the folder first),
  survived    if none does, or no test runs the line.
Mutants that do not compile are replaced by the next ones of the sample. Results are lines of build/mutate/results.jsonl; --out
names another file. Headers are left out, because nearly everything includes them. Needs `pip install universalmutator`.
"""
import argparse
import contextlib
import hashlib
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
HOME = ROOT / "build/mutate"
TREE, COVERED = HOME / "tree", HOME / "coverage.json"
FOLDERS = ("ops", "nn", "optim", "comm", "parallel", "train", "checkpoint", "data", "formats")
PATIENCE = 4  # a program that takes so many times its usual time, and 20 s, has failed
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
       "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}


def run(command, cwd, limit_s=None, environment=None):
    """Returns the exit code, 124 after limit_s, and what the program printed."""
    child = subprocess.Popen([str(word) for word in command], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             env={**os.environ, **MPI, **(environment or {})}, start_new_session=True)
    try:
        said, _ = child.communicate(timeout=limit_s)
        return child.returncode, said.decode(errors="replace")
    except subprocess.TimeoutExpired:
        return 124, ""
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, 9)  # and what it has started


def make_tree():
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    if not TREE.exists():
        HOME.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "-C", ROOT, "worktree", "add", "--detach", TREE, commit], check=True, capture_output=True)
    else:
        subprocess.run(["git", "-C", TREE, "checkout", "--force", "--detach", commit], check=True, capture_output=True)
    return commit


def build(kind, targets=()):
    """Builds the tree as `kind`, coverage or release; returns ninja's exit code and output."""
    folder = HOME / kind
    if not (folder / "build.ninja").exists():
        flags = ["-DCMAKE_CXX_FLAGS=--coverage -O1 -g0"] if kind == "coverage" else []
        launcher = [f"-DCMAKE_CXX_COMPILER_LAUNCHER={ccache}"] if (ccache := shutil.which("ccache")) else []
        code, said = run(["cmake", "-S", TREE, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DINGOT_CUDA=OFF", *flags, *launcher], HOME)
        if code != 0:
            sys.exit(said)
    return run(["ninja", "-C", folder, *targets], HOME)


def programs(kind):
    """Returns the commands of the test programs, by name: those of one process, and those of ranks on 2."""
    folder = HOME / kind / "tests"
    found = {}
    for path in sorted(folder.glob("ingot_*_tests")):
        found[path.name] = [path, "--gtest_brief=1", "--gtest_filter=-*Slow*:*Long*"]
    for path in sorted(folder.glob("*_ranks_test")):
        found[path.name] = ["mpirun", "-n", "2", path, "--gtest_brief=1"]
    return found


def coverage(_):
    commit = make_tree()
    code, said = build("coverage", ["all"])
    if code != 0:
        sys.exit(said[-4000:])
    folder, lines, seconds = HOME / "coverage", {}, {}
    for name, command in programs("coverage").items():
        for old in folder.rglob("*.gcda"):
            old.unlink()
        begin = time.monotonic()
        code, said = run(command, folder / "tests", 3600)
        seconds[name] = time.monotonic() - begin
        if code != 0:
            print(f"{name} fails without a mutant; it is left out:\n{said[-1000:]}", file=sys.stderr)
            continue
        for data in folder.rglob("*.gcda"):
            text = subprocess.run(["gcov", "--json-format", "--stdout", data], cwd=folder, capture_output=True, check=True).stdout
            for report in text.splitlines():
                for file in json.loads(report)["files"]:
                    path = os.path.relpath(os.path.join(folder, file["file"]), TREE)
                    if path.startswith("ingot/") and path.endswith(".cpp"):
                        for line in file["lines"]:
                            if line["count"] > 0:
                                lines.setdefault(path, {}).setdefault(str(line["line_number"]), []).append(name)
        print(f"{name}: {seconds[name]:.0f} s", flush=True)
        COVERED.write_text(json.dumps({"commit": commit, "seconds": seconds, "lines": lines}))
    return 0


def mutants_of(path):
    """Returns (line number, original, mutated) for every mutant of a file."""
    from universalmutator import mutator
    source = (TREE / path).read_text().splitlines(keepends=True)
    with contextlib.redirect_stdout(io.StringIO()):
        found = mutator.mutants_regexp(source, ruleFiles=["universal.rules", "c_like.rules", "cpp.rules"])
    seen = set()
    for number, changed, *_ in found:
        original = source[number - 1]
        key = (number, changed)
        if original.lstrip().startswith(("//", "#", "using ", "namespace ")) or original.strip() == changed.strip() or key in seen:
            continue
        seen.add(key)
        yield number, original, changed


def sample(folders, seed):
    """Returns all mutants of the folders in an order that depends on the seed alone."""
    every = []
    for folder in folders:
        for path in sorted((TREE / "ingot" / folder).rglob("*.cpp")):
            every += [(str(path.relative_to(TREE)), *mutant) for mutant in mutants_of(path.relative_to(TREE))]
    return sorted(every, key=lambda m: hashlib.sha256(f"{seed} {m[0]} {m[1]} {m[3]}".encode()).hexdigest())


def code_of(path):
    """Returns a hash of what an object file computes: its sections without names of files and debugging."""
    bare = HOME / "bare.o"
    subprocess.run(["objcopy", "--strip-debug", "--remove-section=.comment", path, bare], check=True)
    return hashlib.sha256(bare.read_bytes()).hexdigest()


class Library:
    """The release build, in which one file at a time is changed and put back with its objects and their times."""

    def __init__(self):
        code, said = build("release", ["all"])
        if code != 0:
            sys.exit(said[-4000:])
        self.folder = HOME / "release"
        listed = subprocess.run(["ninja", "-C", self.folder, "-t", "deps"], capture_output=True, text=True, check=True).stdout
        self.objects, current = {}, None
        for line in listed.splitlines():
            if line and not line.startswith(" "):
                current = line.split(":")[0]
            elif line.strip().endswith(".cpp"):
                name = os.path.relpath(os.path.join(self.folder, line.strip()), TREE)
                if name.startswith("ingot/"):
                    self.objects.setdefault(name, []).append(current)

    @contextlib.contextmanager
    def mutated(self, path, number, changed):
        """Plants a mutant. Yields its status if that is known already: not compiled, equivalent; otherwise None."""
        file = TREE / path
        kept = {one: one.with_suffix(one.suffix + ".kept") for one in [file, *(self.folder / o for o in self.objects[path])]}
        for one, copy in kept.items():
            shutil.copy2(one, copy)
        try:
            before = [code_of(self.folder / o) for o in self.objects[path]]
            lines = file.read_text().splitlines(keepends=True)
            lines[number - 1] = changed if changed.endswith("\n") else changed + "\n"
            file.write_text("".join(lines))
            code, _ = run(["ninja", "-C", self.folder, *self.objects[path]], HOME, 600)
            if code != 0:
                yield "not compiled"
            else:
                yield "equivalent" if [code_of(self.folder / o) for o in self.objects[path]] == before else None
        finally:
            for one, copy in kept.items():
                shutil.copy2(copy, one)
                os.utime(one)  # newer than the mutant's archive, which is made again from it
                copy.unlink()

    def fails(self, name, command, usual_s):
        """Returns whether a test program fails, twice."""
        code, said = run(["ninja", "-C", self.folder, f"tests/{name}"], HOME, 1800)
        if code != 0:
            return True  # it does not link any more
        for _ in range(2):
            code, _ = run(command, self.folder / "tests", PATIENCE * usual_s + 20, {"GTEST_FAIL_FAST": "1"})
            if code == 0:
                return False
        return True


def judge(library, covered, mutant):
    path, number, _, changed = mutant
    names = covered["lines"].get(path, {}).get(str(number), [])
    folder = path.split("/")[1]
    names = sorted(names, key=lambda name: (name != f"ingot_{folder}_tests", covered["seconds"][name]))
    with library.mutated(path, number, changed) as known:
        if known:
            return known, ""
        for name in names:
            if library.fails(name, programs("release")[name], covered["seconds"][name]):
                return "killed", name
    return "survived", "no test runs the line" if not names else ""


def seconds_of(text):
    return float(text[:-1]) * {"s": 1, "m": 60, "h": 3600}[text[-1]]


def measure(options):
    commit = make_tree()
    if not COVERED.exists():
        sys.exit("first record which programs run which lines: tools/mutate.py coverage")
    covered = json.loads(COVERED.read_text())
    done = {(r["file"], r["line"], r["mutated"]): r for r in read_results(options.out) if r["seed"] == options.seed}
    library, end = Library(), time.monotonic() + options.budget
    judged = 0
    for mutant in sample(options.folders, options.seed):
        path, number, original, changed = mutant
        if judged >= options.mutants:
            break
        if path not in library.objects:  # of another platform or library
            continue
        result = done.get((path, number, changed.rstrip("\n")))
        if result is None:
            if time.monotonic() > end:
                print(f"the budget is over after {judged} mutants; the same command goes on")
                return 0
            begin = time.monotonic()
            status, by = judge(library, covered, mutant)
            result = {"file": path, "line": number, "original": original.strip(), "mutated": changed.rstrip("\n"), "status": status,
                      "by": by, "seed": options.seed, "commit": commit[:10], "seconds": round(time.monotonic() - begin, 1)}
            with options.out.open("a") as file:
                file.write(json.dumps(result) + "\n")
            print(f"{judged + 1}: {path}:{number}: {status} {by}", flush=True)
        judged += result["status"] not in ("not compiled", "equivalent")
    return 0


def read_results(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def report(options):
    rows = {}
    survivors = []
    for r in read_results(options.out):
        row = rows.setdefault(r["file"].split("/")[1], dict.fromkeys(("killed", "survived", "equivalent", "not compiled"), 0))
        row[r["status"]] += 1
        if r["status"] == "survived":
            survivors.append(r)
    print("| folder | killed | survived | score | equivalent |\n|---|---|---|---|---|")
    for folder, row in sorted(rows.items()):
        judged = row["killed"] + row["survived"]
        score = f"{row['killed'] / judged:.0%}" if judged else "–"
        print(f"| {folder} | {row['killed']} | {row['survived']} | {score} | {row['equivalent']} |")
    for r in survivors:
        print(f"\n{r['file']}:{r['line']}: {r['by'] or 'survived'}\n- {r['original']}\n+ {r['mutated'].strip()}")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("coverage", "run", "report"))
    parser.add_argument("--mutants", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folders", nargs="+", default=list(FOLDERS))
    parser.add_argument("--budget", type=seconds_of, default=float("inf"), help="such as 90s, 30m or 2h")
    parser.add_argument("--out", type=pathlib.Path, default=HOME / "results.jsonl")
    options = parser.parse_args()
    return {"coverage": coverage, "run": measure, "report": report}[options.command](options)


if __name__ == "__main__":
    sys.exit(main())
