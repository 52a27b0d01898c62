#!/usr/bin/env python3
"""Cuts the power at random moments: a run writes to ext4 in an image file, the image is copied while it is mounted, and the
copy is mounted, which replays its journal.

  bench/chaos/power_cuts.py [--count 25] [--seed N] [--pty] [--short]      # needs root and loop mounts

The copy is what a disk holds after a power cut: everything that was flushed, and of the rest whatever the kernel had written.
The image is read until two readings in a row are equal, so that the copy is the state of one moment. If the run writes too
much for that, it is stopped (SIGSTOP) for the readings; what it has not flushed is lost all the same. In the copy
  - every checkpoint that existed before the copying began (it is listed only after its folder was flushed) exists, or a
    newer one does;
  - every committed checkpoint has the bytes of the undisturbed run's;
  - the run resumes and ends with losses and checkpoints of the undisturbed run.
"""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import chaos

SIZE_MB = 24
READINGS = 10  # of the image while the run goes on
STEPS = {"train.steps": 2000, "checkpoint.every": 10, "checkpoint.at_start": "true", "checkpoint.keep": 3}


def call(*words):
    return subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)


class Image:
    """An ext4 image that is mounted on a loop device."""

    def __init__(self, path, place):
        self.path, self.place = path, place
        place.mkdir(exist_ok=True)

    def mount(self):
        """Returns what prevents it, or ''."""
        done = call("mount", "-o", "loop", str(self.path), str(self.place))
        return done.stderr.strip() if done.returncode else ""

    def unmount(self):
        call("umount", "-l", str(self.place))


def make_image(test):
    if os.geteuid() or not shutil.which("mkfs.ext4"):
        return None, "it needs root and mkfs.ext4"
    path = test.folder / "disk.img"
    with open(path, "wb") as file:
        file.truncate(SIZE_MB << 20)
    if call("mkfs.ext4", "-q", "-F", str(path)).returncode:
        return None, "mkfs.ext4 fails"
    image = Image(path, test.folder / "disk")
    return image, image.mount()


def acknowledged(run):
    """Returns the newest committed checkpoint."""
    return (chaos.checkpoints(run) or [-1])[-1]


def state_of_one_moment(path, command):
    """Returns the bytes of an image that is being written to, all of the same moment."""
    last = path.read_bytes()
    for reading in range(1000):
        if reading == READINGS:
            command.signal(signal.SIGSTOP)
        this = path.read_bytes()
        if this == last:
            return this
        last = this
    sys.exit("the image of a stopped run does not come to rest")


def cut(test, image, out, words, number):
    """Starts the run, copies the image at a random moment and kills the run.

    Returns (path of the copy, the newest checkpoint that was acknowledged before).
    """
    command = test.command(words)
    chaos.wait_until(lambda: acknowledged(out) >= 0 or not command.is_running(), pause_s=0.001)
    time.sleep(test.random.random() * 1.5)
    # A checkpoint is acknowledged when its folder has been flushed, which is after it appears: the one before the newest
    # certainly is, and the newest is if the next one has been begun.
    steps = chaos.checkpoints(out)
    before = steps[-2] if len(steps) > 1 else -1
    copy = test.folder / f"cut-{number}.img"
    copy.write_bytes(state_of_one_moment(image.path, command))
    command.signal(signal.SIGKILL)
    command.wait()
    return copy, before


def check(test, copy, before, calm, number):
    """Mounts the copy and resumes the run in it. Returns the steps that were kept beyond the acknowledged one."""
    restored = Image(copy, test.folder / "restored")
    if why := restored.mount():
        test.fail(f"cut {number}: the copy cannot be mounted: {why}")
        return
    try:
        out = pathlib.Path(restored.place) / "run"
        faults = chaos.differences(out, calm, is_complete=False)
        newest = acknowledged(out)
        if newest < before:
            faults.append(f"checkpoint {before} was acknowledged, and the newest is {newest}")
        outcome = test.resume(out)
        if outcome.code:
            faults.append(f"the resumed run ends with {outcome.code}")
        faults += chaos.differences(out, calm)
        if faults:
            test.fail(f"cut {number}: {'; '.join(faults)}", outcome.output)
    finally:
        restored.unmount()


def main():
    test = chaos.Chaos(__doc__, 25, 2, "power cuts")
    image, why = make_image(test)
    if why:
        shutil.rmtree(test.folder)
        chaos.skip(test.name, why)
    saved = 0
    try:
        calm = test.calm_run("calm", STEPS)
        out = image.place / "run"
        while test.done < test.count and len(test.failures) < 5:
            shutil.rmtree(out, ignore_errors=True)
            copy, before = cut(test, image, out, test.train(out, STEPS), test.done)
            saved += before // STEPS["checkpoint.every"] + 1
            check(test, copy, before, calm, test.done)
            test.done += 1
            if not test.failures:
                copy.unlink()
    finally:
        chaos.end_processes(test.folder)
        image.unmount()
    return test.finish(f"{saved} acknowledged checkpoints")


if __name__ == "__main__":
    sys.exit(main())
