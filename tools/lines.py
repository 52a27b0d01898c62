#!/usr/bin/env python3
"""Prints the lines of each folder of ingot/, of apps/ and of tests/, and their change since the last tag or the given commit:
tools/lines.py [COMMIT]. CI shows them, because size is a cost."""
import collections
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout


def folder_of(name):
    parts = name.split("/")
    return "/".join(parts[:2]) if parts[0] == "ingot" else parts[0]


def main() -> int:
    lines, change = collections.Counter(), collections.Counter()
    for name in git("ls-files", "ingot", "apps", "tests").split():
        if not name.startswith("tests/golden/") and (ROOT / name).is_file():
            lines[folder_of(name)] += (ROOT / name).read_bytes().count(b"\n")
    base = sys.argv[1] if len(sys.argv) > 1 else git("describe", "--tags", "--abbrev=0").strip()
    for row in git("diff", "--numstat", "--no-renames", base, "--", "ingot", "apps", "tests").splitlines() if base else []:
        added, removed, name = row.split("\t")
        if added != "-" and not name.startswith("tests/golden/"):
            change[folder_of(name)] += int(added) - int(removed)
    totals = {"ingot + apps": [f for f in lines if f != "tests"], "tests": ["tests"]}
    for title, folders in totals.items():
        print(f"{sum(lines[f] for f in folders):8,} {sum(change[f] for f in folders):+8,}  {title}")
        for folder in sorted(folders, key=lambda f: -lines[f]) if len(folders) > 1 else []:
            print(f"{lines[folder]:8,} {change[folder]:+8,}    {folder}")
    print(f"lines, and their change since {base}" if base else "lines; there is no tag to compare with")
    return 0


if __name__ == "__main__":
    sys.exit(main())
