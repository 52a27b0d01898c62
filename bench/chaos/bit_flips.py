#!/usr/bin/env python3
"""Flips single bits in the files of the newest checkpoint; every flip must be found, and its file named.

  bench/chaos/bit_flips.py [--count 2000] [--seed N] [--pty] [--short]

Half of the flips hit a file in proportion to its size, half a file chosen at random, so that small files are hit too. After
each flip the run is resumed. It must name the damaged file, go on from the checkpoint before it, make the steps in
between again, and replace the damaged checkpoint by one with the bytes of the undisturbed run. `ingot eval` of the damaged
checkpoint must fail with exit code 3 and name the file (for every tenth flip) if that is a file which it reads.
"""
import shutil
import sys

import chaos

STEPS = {"train.steps": 6, "checkpoint.every": 2, "checkpoint.keep": 3}
NEWEST, BEFORE = 6, 4
UNREAD = {"optimizer.safetensors", "trainer.json", "generation_config.json"}  # eval does not read these


def flip(path, bit):
    with open(path, "r+b") as file:
        file.seek(bit // 8)
        byte = file.read(1)[0]
        file.seek(bit // 8)
        file.write(bytes([byte ^ (1 << bit % 8)]))


def choose(test, files):
    """Returns (path, bit)."""
    sizes = [path.stat().st_size for path in files]
    weights = sizes if test.random.random() < 0.5 else None
    path = test.random.choices(files, weights)[0]
    return path, test.random.randrange(8 * path.stat().st_size)


def main():
    test = chaos.Chaos(__doc__, 2000, 40, "bit flips")
    calm = test.calm_run("calm", STEPS)
    out, by_file, evaluated = test.folder / "run", {}, 0
    outcome = test.run(test.train(out, STEPS))
    newest = chaos.checkpoint(out, NEWEST)
    if outcome.code or chaos.differences(out, calm):
        test.fail("the run without a fault", outcome.output)
    while test.done < test.count and len(test.failures) < 5:
        path, bit = choose(test, sorted(newest.iterdir()))
        flip(path, bit)
        where = f"flip {test.done}: bit {bit} of {path.name}"
        if test.done % 10 == 0:
            outcome = test.run(["eval", str(newest), "--data", str(test.text)])
            evaluated += 1
            found = outcome.code == 3 and path.name in outcome.output
            if not found and (path.name not in UNREAD or outcome.code):
                test.fail(f"{where}: eval ends with {outcome.code}", outcome.output)
        outcome = test.resume(out)
        if outcome.code or path.name not in outcome.output or f"step {BEFORE}" not in outcome.output:
            test.fail(f"{where}: exit code {outcome.code}", outcome.output)
        if faults := chaos.differences(out, calm):
            test.fail(f"{where}: {'; '.join(faults)}", outcome.output)
        for aside in (out / "checkpoints").glob("*.kept-*"):  # a folder whose manifest cannot be read is not overwritten
            if path.name != "MANIFEST.json":
                test.fail(f"{where}: {aside.name} was set aside", outcome.output)
            shutil.rmtree(aside)
        by_file[path.name] = by_file.get(path.name, 0) + 1
        test.done += 1
    files = ", ".join(f"{count} in {name}" for name, count in sorted(by_file.items()))
    return test.finish(f"{files}; {evaluated} also by eval")


if __name__ == "__main__":
    sys.exit(main())
