#!/usr/bin/env python3
"""Makes the golden run folders of a release: tests/golden/runs/VERSION. tests/apps/golden_runs_test.cpp loads, resumes and
exports the folders of every release. Each is a run of 8 steps that keeps its checkpoint of step 4, so that a resume can be compared with
the run's own metrics. Folders that exist are never made again: they are what that release wrote.

  tools/make_golden_run.py build/release/ingot
"""
import json
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent / "tests/golden/runs"
COMMON = {"model.layers": 1, "model.width": 16, "model.heads": 2, "model.context": 16, "train.batch_size": 2,
          "train.threads": 1, "train.steps": 8, "train.stats_every": 4, "checkpoint.every": 4, "eval.every": 4,
          "eval.max_tokens": 320, "sample.count": 1, "sample.tokens": 8, "schedule.warmup_steps": 2}
# Together they hold every kind of file and state of a checkpoint.
RUNS = {
    "llama": ("tiny-llama", {"data.tokenizer": "char", "model.vocab_multiple": 8, "model.kv_heads": 1, "model.dropout": 0.1, "optimizer.ema": 0.9}),
    "gpt": ("tiny-gpt2", {"data.tokenizer": "bpe", "data.tokenizer_vocab": 300, "precision.compute": "f16",
                         "precision.fp8": "delayed", "precision.fp8_amax_history": 4,
                         "optimizer.group": '[{roles = ["matrix"], kind = "muon", lr = 0.02}]'}),
}
DROPPED = ["report.html", "loss.svg", "heartbeat.json", ".lock", "tb", "checkpoints/best", "checkpoints/step-000000008"]


def remove(path: pathlib.Path):
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def clean(record: dict):
    """Removes what tells about the machine that made the run."""
    record["machine"].update(cpu="a processor", system="Linux", memory_bytes=1 << 34)
    record["process"].update(host="host", boot_id="00000000-0000-0000-0000-000000000000", pid=1, start_ticks=1)
    record["program"]["arguments"][0] = "ingot"
    for part in record["parts"]:
        part.update(host="host", pid=1)
        part["arguments"][0] = "ingot"


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
    folder = ROOT / version
    folder.mkdir(parents=True)
    # The text has few different characters, so that the tables of tokens are small.
    (folder / "text.txt").write_text("".join(f"{n} times {n} is {n * n}\n" for n in range(300)))
    for name, (preset, settings) in RUNS.items():
        words = [f"--set={key}={value}" for key, value in (COMMON | settings).items()]
        subprocess.run([program, "train", preset, "--data", "text.txt", "--out", name, "--quiet", *words], cwd=folder,
                       check=True)
        run = folder / name
        for dropped in DROPPED:
            remove(run / dropped)
        log = run / "train.log"
        log.write_text(log.read_text().replace(str(program), "ingot"))
        record = json.loads((run / "run.json").read_text())
        clean(record)
        (run / "run.json").write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
