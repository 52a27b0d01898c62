#!/usr/bin/env python3
"""Disturbs every call on a file of a run's folder, one after the other, and resumes the run.

  bench/chaos/file_calls.py [--count N] [--seed N] [--pty] [--short]

A library (file_faults.c, built here with cc and loaded by LD_PRELOAD) counts the calls: open, read, write, fsync, close,
rename, mkdir, unlink, ftruncate. In three situations, a fresh run that saves and prunes, and runs resumed from their only
checkpoint and from the newest of two, each call is
  kill    replaced by SIGKILL
  EIO     failed
  ENOSPC  failed, if it writes
  short   half done, if it reads or writes
  EINTR   failed, if it may block
The run may go on, or end with an error that names the file and has an exit code of docs/reliability.md. Then the same run,
resumed without faults, must end with the losses and checkpoints of an undisturbed run. How many calls a run makes depends a little
on time, so the last calls that were counted may not come; that is said, and is no failure in one run of a hundred.

--count is the most faults, which are chosen at random; --situations fresh,resumed,fallen-back selects some.
"""
import shutil
import subprocess
import sys

import chaos

SETTINGS = {"train.steps": 6, "checkpoint.every": 2}
WRITES = {"create", "write", "pwrite", "writev", "fsync", "fdatasync", "close", "ftruncate", "rename", "mkdir"}
TRANSFERS = {"read", "pread", "write", "pwrite", "writev"}
BLOCKS = {"open", "create", "close", "fsync", "fdatasync", "ftruncate"} | TRANSFERS
CALLS = {"kill": None, "EIO": None, "ENOSPC": WRITES, "short": TRANSFERS, "EINTR": BLOCKS}


def build_shim(test):
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        chaos.skip(test.name, "there is no C compiler")
    library = test.folder / "file_faults.so"
    source = chaos.ROOT / "bench/chaos/file_faults.c"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    return str(library)


class Situation:
    """A run of which every call is disturbed: how it begins, and with which command."""

    def __init__(self, test, name, keep, begin):
        self.test, self.name, self.begin = test, name, begin
        self.settings = SETTINGS | {"checkpoint.keep": keep}

    def prepare(self, number):
        out = self.test.folder / f"chaosrun-{self.name}-{number}"
        if self.begin is None:
            return out, self.test.train(out, self.settings)
        shutil.copytree(self.begin, out)
        return out, ["train", "--resume", "--out", str(out), "--set", "train.stop_at=0"]

    def disturbed(self, number, shim, call, fault, log=None):
        out, words = self.prepare(number)
        outcome = self.test.run(words, environment={
            "LD_PRELOAD": shim, "INGOT_CHAOS_FOLDER": out.name, "INGOT_CHAOS_AT": str(call), "INGOT_CHAOS_FAULT": fault,
            "INGOT_CHAOS_LOG": log})
        return out, outcome


def check(test, situation, name, fault, out, outcome, calm, was_reached):
    """Checks how the disturbed run ended, resumes it and compares. Returns the kind of its end."""
    faults = []
    if fault == "kill" and outcome.code != (137 if was_reached else 0):
        faults.append(f"exit code {outcome.code} after a kill")
    is_config = outcome.code == 2 and "config.toml: cannot be read" in outcome.output
    if fault != "kill" and outcome.code not in (0, 3, 6) and not is_config:
        faults.append(f"exit code {outcome.code}")
    if outcome.code not in (0, 137) and out.name not in outcome.output:
        faults.append("the message names no file")
    if fault == "short" and outcome.code != 0:
        faults.append("a short transfer is no error")
    kind = {0: "went on" if was_reached else "not reached", 137: "killed"}.get(outcome.code, "ended by name")
    faults += chaos.differences(out, calm, is_complete=False)
    if outcome.code != 0:
        words = ["train", "--resume", "--out", str(out), "--set", "train.stop_at=0"]
        if not chaos.checkpoints(out):
            words = test.train(out, situation.settings)
        again = test.run(words)
        if again.code == 2 and "holds no checkpoint to go on from: choose another --out" in again.output:
            out = out.with_name(out.name + "-other")
            again = test.run(test.train(out, situation.settings))
        if again.code:
            faults.append(f"the next start failed with {again.code}: {again.output.strip()[-300:]}")
    faults += [fault for fault in chaos.differences(out, calm) if fault not in faults]
    if out.name.endswith("-other"):
        shutil.rmtree(out)
    if faults:
        test.fail(f"{situation.name}, {name}, {fault}: {'; '.join(faults)}", outcome.output)
    return kind


def main():
    test = chaos.Chaos(__doc__, 1000000, 120, "faults", lambda parser: parser.add_argument(
        "--situations", default="fresh,resumed,fallen-back"))
    shim = build_shim(test)
    calm = test.calm_run("calm", SETTINGS)
    begun = test.folder / "begun"
    test.run(test.train(begun, SETTINGS | {"checkpoint.keep": 1, "train.stop_at": 3}))
    older = test.folder / "older"
    test.run(test.train(older, SETTINGS | {"checkpoint.keep": 2, "train.stop_at": 5}))
    plan, kinds, numbers = [], {}, 0
    for situation in (Situation(test, "fresh", 1, None), Situation(test, "resumed", 1, begun),
                      Situation(test, "fallen-back", 2, older)):
        if situation.name not in test.options.situations:
            continue
        log = test.folder / f"{situation.name}.log"
        out, outcome = situation.disturbed("count", shim, 0, "kill", str(log))
        if outcome.code or (faults := chaos.differences(out, calm)):
            test.fail(f"{situation.name} without a fault: {outcome.code} {faults}", outcome.output)
            continue
        calls = [line.split()[1] for line in log.read_text().splitlines()]
        numbers += len(calls)
        plan += [(situation, call, name, fault) for call, name in enumerate(calls, 1) for fault, only in CALLS.items()
                 if only is None or name in only]
    if test.count < len(plan):
        plan = test.random.sample(plan, test.count)
    for number, (situation, call, name, fault) in enumerate(plan):
        log = test.folder / "calls.log"
        log.unlink(missing_ok=True)
        out, outcome = situation.disturbed(number, shim, call, fault, str(log) if fault == "kill" else None)
        was_reached = fault != "kill" or len(log.read_text().splitlines()) >= call
        kind = check(test, situation, f"call {call} ({name})", fault, out, outcome, calm, was_reached)
        kinds[kind] = kinds.get(kind, 0) + 1
        test.done += 1
        if len(test.failures) > 20:
            break
        shutil.rmtree(out, ignore_errors=True)
    if kinds.get("not reached", 0) * 100 > len(plan):
        test.fail(f"{kinds['not reached']} of {len(plan)} calls were not reached", "")
    return test.finish(f"{numbers} calls: " + ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())))


if __name__ == "__main__":
    sys.exit(main())
