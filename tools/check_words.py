#!/usr/bin/env python3
"""Finds words that the glossary of docs/architecture.md and the rules for English have retired: identifiers that have
another name now (in code, docs and tests), and comments of ingot/, apps/ and tests/ that are not sentences or are too long a line. Prints file, line
and the word to write instead, and exits with 1 if it finds any."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RETIRED = {
    "Box": "Rect", "ParamPiece": "ParamShard", "ParamPart": "TensorSlice", "DataShare": "DataShard",
    "TensorShare": "TensorParallel", "SharedUpdate": "UpdateComm", "OwnUpdate": "LocalUpdate", "MeshUpdate": "DistributedMuon",
    "Holders": "Replicas", "Keepers": "ReplicaScope", "sharers": "shard_group", "LateSteps": "StepResults",
    "can_give": "can_submit", "read_given": "collect", "judge_step": "check_step", "row_parts": "fused_rows",
}
# Patterns that comments must not contain, and what to do about each.
COMMENTS = [
    (re.compile(r"\b(nobody|somebody|whoever|everybody)\b", re.IGNORECASE), "name who acts, or who does not"),
    (re.compile(r"^\s*// (What|How|Which|Where|Whether|When|Who|Why|Of|By|With whom|Absent:|None:|Nothing:) "),
     "write a sentence with a subject and a verb"),
    (re.compile(r"\b(beside|besides|goes on|by turns|(?<!`)told (?!apart)|tells? each other|says so|under way|gives? way|has its turn|"
                r"all the same|so far as)\b", re.IGNORECASE), "write the field's word"),
]
MOST_COLUMNS = 110  # of a comment line; longer ones cannot be read next to a diff
WORD = re.compile(r"\b(" + "|".join(RETIRED) + r")\b(?!(-| and | & )Muller)")


def findings(name: str, text: str):
    is_ours = name.startswith(("ingot/", "apps/", "tests/")) and name.endswith((".h", ".cpp", ".cu"))
    was_comment = False
    for number, line in enumerate(text.splitlines(), 1):
        for match in WORD.finditer(line):
            yield f"{name}:{number}: {match.group(1)}: its name is {RETIRED[match.group(1)]}"
        is_comment = line.lstrip().startswith("//")
        comment = line[line.find("//"):] if "//" in line and is_ours else ""
        for pattern, cure in COMMENTS:
            # The first line of a comment begins a sentence; later lines may begin with any word.
            at = pattern.search(line if pattern.pattern.startswith("^") else comment)
            if is_ours and at and not (was_comment and pattern.pattern.startswith("^")):
                yield f"{name}:{number}: '{at.group(0).strip()}': {cure}"
        if is_ours and is_comment and len(line) > MOST_COLUMNS:
            yield f"{name}:{number}: {len(line)} columns: a comment line has at most {MOST_COLUMNS}"
        was_comment = is_comment


def main() -> int:
    names = subprocess.check_output(["git", "ls-files", "*.h", "*.cpp", "*.cu", "*.md", "CMakeLists.txt", "cmake"], cwd=ROOT,
                                    text=True).split()
    history = ("docs/log.md", "CHANGELOG.md")  # history keeps the words of its time
    found = [finding for name in names if name not in history and (ROOT / name).is_file()
             for finding in findings(name, (ROOT / name).read_text(encoding="utf-8"))]
    print("\n".join(found) if found else f"words: {len(names)} files use the glossary's words")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
