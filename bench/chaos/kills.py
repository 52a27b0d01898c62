#!/usr/bin/env python3
"""Kills a run again and again at random moments (SIGKILL) and resumes it; the end must be that of an undisturbed run.

  bench/chaos/kills.py [--count 500] [--seed N] [--pty] [--short]

Half of the runs are in f32, half in bf16 with dropout and an average of the weights. After every kill:
  - every committed checkpoint has the bytes of the undisturbed run's checkpoint of that step;
  - the newest checkpoint is at least as new as the newest that existed before the kill;
  - the next start goes on from the newest checkpoint, or from the beginning if there is none.
"""
import re
import signal
import sys
import time

import chaos

STEPS = {"train.steps": 600, "checkpoint.every": 20, "checkpoint.at_start": "true"}


def kill_once(test, out, words, longest_s):
    """Starts the run, kills it after a random time, and returns (outcome, the newest checkpoint before the kill)."""
    command = test.command(words)
    end = time.monotonic() + test.random.random() * longest_s
    while time.monotonic() < end and command.is_running():
        time.sleep(0.001)
    seen = chaos.checkpoints(out)
    command.signal(signal.SIGKILL)
    return command.wait(), seen[-1] if seen else -1


def check_kill(test, out, calm, seen, before, outcome):
    faults = chaos.differences(out, calm, is_complete=False)
    steps = chaos.checkpoints(out)
    if seen >= 0 and (not steps or steps[-1] < seen):
        faults.append(f"checkpoint {seen} is lost; there are {steps}")
    resumed = re.search(r"resumed .*?step (\d+)", outcome.output)
    if resumed and int(resumed[1]) < before:
        faults.append(f"resumed from step {resumed[1]}, not {before}")
    if outcome.code not in (0, 137):
        faults.append(f"exit code {outcome.code}")
    if faults:
        test.fail(f"kill {test.done}: {'; '.join(faults)}", outcome.output)


def main():
    test = chaos.Chaos(__doc__, 500, 20, "kills")
    kinds = {"f32": STEPS, "mixed": STEPS | chaos.MIXED}
    calm, longest_s = {}, {}
    for name, settings in kinds.items():
        start = time.monotonic()
        calm[name] = test.calm_run(f"calm-{name}", settings)
        longest_s[name] = 0.8 * (time.monotonic() - start)
    runs = 0
    while test.done < test.count and len(test.failures) < 5:
        name = "f32" if runs % 2 == 0 else "mixed"
        out = test.folder / f"run-{runs}"
        words = test.train(out, kinds[name] | {"checkpoint.keep": test.random.choice([1, 2, 3])})
        while True:
            before = (chaos.checkpoints(out) or [-1])[-1]
            if test.done < test.count:
                outcome, seen = kill_once(test, out, words, longest_s[name])
                test.done += outcome.code == 137
            else:
                outcome, seen = test.run(words), -1
            check_kill(test, out, calm[name], seen, before, outcome)
            if outcome.code == 0:
                break
            if outcome.code != 137 or len(test.failures) >= 5:
                break
            if chaos.checkpoints(out):
                words = ["train", "--resume", "--out", str(out)]
        runs += 1
        if outcome.code == 0 and (faults := chaos.differences(out, calm[name])):
            test.fail(f"run {runs}: {'; '.join(faults)}", outcome.output)
    return test.finish(f"{runs} runs ended bit-identically" if not test.failures else f"{runs} runs")


if __name__ == "__main__":
    sys.exit(main())
