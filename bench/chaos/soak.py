#!/usr/bin/env python3
"""Trains on four ranks under `ingot launch` for hours, with a random fault every minute, and measures the goodput.

  bench/chaos/soak.py [--minutes 120] [--every 60] [--seed N] [--pty] [--short] [--goodput 0.85]

The faults: a rank is killed, crashes (SIGSEGV) or is stopped; mpirun is killed; the supervisor is killed, and the same
command started again at once; the disk is full for ten seconds (a tmpfs; left out where it cannot be mounted); a bit of the
newest checkpoint flips and a rank is killed. All kinds come equally often, in random order.

Goodput is the number of steps that count, times the median time of a step in the same run, divided by the wall time from the
first start to the end. It must be at least --goodput. On a machine that other work shares, slow steps count as losses; the
figure with each step's own time is printed too. Then an undisturbed run of the same length is made, and losses and last
checkpoint must be equal to its, bit for bit.
"""
import json
import os
import signal
import statistics
import subprocess
import sys
import time

import chaos
from bit_flips import flip
from ranks import SIGNALS, incidents, stop_in_step

MODEL = {"model.layers": 4, "model.width": 128, "model.heads": 4, "model.context": 128, "train.batch_size": 8,
         "train.grad_accum": 4, "parallel.dp": 2, "parallel.fsdp": 2, "checkpoint.keep": 3}
SAVE_S = 4        # between two checkpoints
FULL_S = 10       # how long the disk is full
SHORT_MINUTES, SHORT_EVERY_S = 1.5, 15


class Soak:
    def __init__(self, test, minutes):
        self.test, self.minutes = test, minutes
        self.disk = test.folder / "disk"
        self.disk.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1g", "tmpfs", str(self.disk)],
                                 stderr=subprocess.DEVNULL, check=False)
        self.has_disk = mounted.returncode == 0
        self.out, self.faults, self.starts = self.disk / "run", {}, 0
        self.kinds = ["kill", "segfault", "stop", "mpirun", "supervisor", "flip"] + ["full"] * self.has_disk
        if not self.has_disk:
            print(f"{test.name}: full disk: left out, because no tmpfs can be mounted here")
        self.next_kinds = []

    def settings(self):
        """Measures some steps and returns the settings of a run of about the asked length."""
        probe = self.test.folder / "probe"
        outcome = self.test.run(["launch", "--", *self.test.train(probe, MODEL | {"train.steps": 100})])
        if outcome.code:
            sys.exit(f"{self.test.name}: the run that measures a step failed: {outcome.output}")
        step_s = statistics.median(step_times(probe).values())
        steps = max(100, round(0.88 * 60 * self.minutes / step_s))
        return MODEL | {"train.steps": steps, "checkpoint.every": max(1, round(SAVE_S / step_s))}

    def start(self, words):
        self.starts += 1
        return self.test.command(words)

    def disturb(self, command):
        if not self.next_kinds:
            self.next_kinds = self.test.random.sample(self.kinds, len(self.kinds))
        kind = self.next_kinds.pop()
        ranks = [pid for pid in chaos.processes(self.out) if pid != command.pid]
        print(f"  after {time.monotonic() - self.test.start_s:.0f} s, step {chaos.last_step(self.out)}: {kind}", flush=True)
        if kind == "stop" and ranks:
            stop_in_step(self.test, self.out, self.test.random.choice(ranks))
        elif kind in SIGNALS and ranks:
            chaos.send(self.test.random.choice(ranks), SIGNALS[kind])
        elif kind == "mpirun":
            for pid in chaos.processes(self.out, "mpirun"):
                chaos.send(pid, signal.SIGKILL)
        elif kind == "supervisor":
            command.signal(signal.SIGKILL)
        elif kind == "full":
            self.fill()
        elif kind == "flip":
            self.flip_newest()
            if ranks:
                chaos.send(self.test.random.choice(ranks), signal.SIGKILL)
        self.faults[kind] = self.faults.get(kind, 0) + 1

    def fill(self):
        balloon = self.disk / "balloon"
        try:
            with open(balloon, "wb") as file:
                while True:
                    file.write(bytes(1 << 20))
                    file.flush()
        except OSError:
            pass
        time.sleep(FULL_S)
        balloon.unlink()

    def flip_newest(self):
        try:
            path = chaos.checkpoint(self.out, chaos.checkpoints(self.out)[-1]) / "model.safetensors"
            flip(path, self.test.random.randrange(8 * path.stat().st_size))
        except (OSError, IndexError):  # it has just been pruned
            pass

    def run(self, words, every_s):
        """Trains to the end under faults. Returns the wall time in seconds."""
        begin = time.monotonic()
        most_s = 3 * 60 * self.minutes + 120
        command, next_fault = self.start(words), begin + every_s
        while time.monotonic() - begin < most_s:
            time.sleep(0.1)
            if not command.is_running():
                outcome = command.wait()
                if outcome.code == 0:
                    return time.monotonic() - begin
                if outcome.code not in (137, 75):
                    break
                chaos.wait_until(lambda: not chaos.processes(self.out), 60, 0.1)
                command = self.start(words)
            elif time.monotonic() >= next_fault:
                self.disturb(command)
                next_fault += every_s
        self.test.fail(f"the run did not end by itself, at step {chaos.last_step(self.out)}", command.output[-4000:])
        chaos.end_processes(self.out)
        return time.monotonic() - begin


def step_times(run):
    """Returns the seconds of every step that counts."""
    found = {}
    for line in (run / "metrics.jsonl").read_text(errors="replace").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if "step_ms" in row:
            found[row["step"]] = row["step_ms"] / 1000
    return found


def report(test, soak, settings, wall_s):
    """Prints the figures and returns them in short."""
    times = step_times(soak.out)
    median_s = statistics.median(times.values())
    goodput = settings["train.steps"] * median_s / wall_s
    found = incidents(soak.out)
    recovery = [incident["recovery_s"] for incident in found if incident.get("recovery_s") is not None]
    lost = sum(incident.get("steps_lost") or 0 for incident in found)
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(soak.faults.items()))
    own = sum(times.values()) / wall_s
    figures = (f"goodput {100 * goodput:.1f} % ({100 * own:.1f} % by the steps' own times) of {wall_s / 60:.1f} minutes, {settings['train.steps']} steps of "
               f"{1000 * median_s:.1f} ms, {sum(soak.faults.values())} faults ({kinds}), {len(found)} incidents, "
               f"{lost} steps made again, {soak.starts} starts by hand")
    if recovery:
        figures += f", recovery median {statistics.median(recovery):.1f} s, longest {max(recovery):.1f} s"
    print(f"{test.name}: {figures}", flush=True)
    if goodput < test.options.goodput:
        test.fail(f"the goodput is {100 * goodput:.1f} %, below {100 * test.options.goodput:.0f} %")
    return figures


def options(parser):
    parser.add_argument("--minutes", type=float, default=None, help="length of the disturbed run; default 120")
    parser.add_argument("--every", type=float, default=None, help="seconds between two faults; default 60")
    parser.add_argument("--goodput", type=float, default=None, help="the least goodput; default 0.85, 0 with --short")


def main():
    test = chaos.Chaos(__doc__, 1, 1, "soak", options)
    short = test.options.short
    if test.options.goodput is None:
        test.options.goodput = 0 if short else 0.85
    minutes = test.options.minutes or (SHORT_MINUTES if short else 120)
    chaos.LONGEST_S = 3 * 60 * minutes + 600
    soak = Soak(test, minutes)
    try:
        settings = soak.settings()
        words = ["launch", "--", *test.train(soak.out, settings)]
        wall_s = soak.run(words, test.options.every or (SHORT_EVERY_S if short else 60))
        figures = report(test, soak, settings, wall_s)
        calm = test.folder / "calm"
        outcome = test.command(["launch", "--", *test.train(calm, settings)]).wait(chaos.LONGEST_S)
        faults = [f"the undisturbed run ends with {outcome.code}"] if outcome.code else chaos.differences(soak.out, calm)
        if faults:
            test.fail("; ".join(faults))
        test.done = 1
    finally:
        chaos.end_processes(test.folder)
        if test.options.keep or test.failures:
            subprocess.run(["cp", "-r", str(soak.out), str(test.folder / "disturbed")], check=False)
        if soak.has_disk:
            subprocess.run(["umount", "-l", str(soak.disk)], check=False)
            os.sync()
    return test.finish(figures + ("" if faults else "; the end is bit-identical to an undisturbed run"))


if __name__ == "__main__":
    sys.exit(main())
