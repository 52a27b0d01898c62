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
    "AttentionPlaces": "AttentionStorage", "MlpPlaces": "MlpStorage", "bring_back": "copy_to_host",
    "is_told_to_end": "is_stop_requested", "goes_on": "should_continue", "say_hello": "log_start",
    "let_first_process_speak": "let_rank_zero_report_first", "serve_until_told": "serve_until_stopped",
    "start_debris": "stale_files", "is_start_debris": "has_only_stale_files", "closing_words": "final_summary",
    "PatientLog": "BufferedLog", "patient_log": "buffered_log", "take_trouble": "take_error", "job_words": "job_errors",
    "can_judge_on_device": "can_check_on_device", "x8_turned": "x8_transposed", "kTurned": "kTransposed",
    "dw_lost": "dw_compensation", "heads_to_rows": "pack_heads", "rows_to_heads": "unpack_heads",
    "first_rows": "cu_seqlens", "is_all_singles": "is_decode_only", "OtherText": "DataMismatch",
    "other_text": "data_mismatch", "UpdateComm::Keeps": "UpdateComm::StatePlacement", "kMost": "kMax",
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
WORD = re.compile(r"\b(" + "|".join(RETIRED) + r")\b(?!(-| and | & )Muller)|\b(kMost)(?=[A-Z])")


def findings(name: str, text: str):
    is_ours = name.startswith(("ingot/", "apps/", "tests/")) and name.endswith((".h", ".cpp", ".cu"))
    was_comment = False
    for number, line in enumerate(text.splitlines(), 1):
        for match in WORD.finditer(line):
            yield f"{name}:{number}: {match.group(0)}: its name is {RETIRED[match.group(0)]}"
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
