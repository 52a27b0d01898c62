#!/usr/bin/env python3
"""Times steps of pairs of settings in alternation, each with a null arm, and writes all rounds to results/times.json.

An arm of a round is one `ingot bench step`; its figure is the median step. The null arm is the first one once more.
`ingot bench head` adds the working memory of the head's kinds to results/head.json.
"""

import json
import subprocess
import sys

import results

HEAD = {"model.vocab": 8192, "model.width": 128, "model.layers": 2, "model.context": 128, "train.batch_size": 8, "precision.compute": "bf16"}
# Base arm -> (its settings, the other arm, what it changes).
PAIRS = {
    "adamw": ({"optimizer.kind": "adamw"}, "adamw8bit", {"optimizer.kind": "adamw8bit"}),
    "head, dense": ({**HEAD, "head.kind": "dense"}, "head, chunked", {"head.kind": "chunked"}),
    "head, recompute": ({**HEAD, "head.kind": "recompute"}, "head, recompute, Kahan", {"head.accumulation": "kahan"}),
}


def said_by(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def step_ms(options, settings):
    command = [options.ingot, "bench", "step", "tiny-llama", "--json", "--no-products", "--steps", str(options.steps)]
    tiny = {"model.vocab": 512, "model.width": 64, "model.context": 32} if options.tiny else {}
    for key, value in {**settings, **tiny}.items():
        command += ["--set", f"{key}={value}"]
    return said_by(command)["step_ms"]


def main():
    options = results.measured_options(__doc__, rounds=31, steps=20)
    result = results.provenance()
    result["arms"] = {}
    for base, (settings, other, change) in PAIRS.items():
        arms = [(base, settings), (other, {**settings, **change}), (f"{base} again", settings)]
        for turn in range(options.rounds):
            for name, own in arms[turn % 3:] + arms[:turn % 3]:
                result["arms"].setdefault(name, {"ms": {}})["ms"][str(turn)] = step_ms(options, own)
        print(f"{base} and {other}: {options.rounds} rounds", flush=True)
        results.save("times", result, options.out)
    head = results.provenance()
    rows = said_by([options.ingot, "bench", "head", "--tokens", "512" if options.tiny else "4096", "--vocab",
                    "2048" if options.tiny else "32768", "--width", "128", "--repetitions", "2",
                    "--json"])
    head["arms"] = {row["kind"]: {"scratch_bytes": {"exact": row["scratch_bytes"]}} for row in rows["rows"]}
    results.save("head", head, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
