#!/usr/bin/env python3
"""Exports a small run by `ingot export-run` to Weights & Biases (offline) and to MLflow (a store in a temporary folder), and
compares what arrived with the run's files. Needs a python with wandb and mlflow (or mlflow-skinny), and no network.

Usage: INGOT_PYTHON=VENV/bin/python VENV/bin/python tools/check_export_run.py [--program build/release/ingot]"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def check(is_true, what):
    if not is_true:
        sys.exit(f"check_export_run: FAILED: {what}")


def written(run):
    """(step, key, value) of every number in metrics.jsonl."""
    out = {}
    for line in (run / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        for key, value in row.items():
            if key != "step" and isinstance(value, (int, float)):
                out[(row["step"], key)] = value
    return out


def log_records(data):
    """The records of a .wandb file: a header of 7 bytes, then LevelDB's log format, whose blocks have 32 KiB."""
    at, record = 7, b""
    while at + 7 <= len(data):
        rest = 32768 - at % 32768
        if rest < 7:
            at += rest
            continue
        length, kind = int.from_bytes(data[at + 4:at + 6], "little"), data[at + 6]
        record += data[at + 7:at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            yield record
            record = b""


def check_wandb(program, run, folder, *more):
    env = dict(os.environ, WANDB_MODE="offline", WANDB_DIR=str(folder), WANDB_SILENT="true")
    subprocess.run([program, "export-run", str(run), "--wandb", "--project", "p", *more], check=True, env=env, cwd=folder)
    from wandb.proto import wandb_internal_pb2
    [file] = folder.glob("wandb/offline-run-*/*.wandb")
    arrived, configuration = {}, {}
    for data in log_records(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        for update in record.run.config.update:
            configuration[update.key or ".".join(update.nested_key)] = json.loads(update.value_json)
        if record.HasField("history"):
            items = {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            step = record.history.step.num or items.get("_step")
            for key, value in items.items():
                arrived[(int(step), key)] = value
    for place, value in written(run).items():
        check(place in arrived and abs(arrived[place] - value) <= 1e-12 * abs(value), f"wandb: {place} is {value}, got {arrived.get(place)}")
    check(configuration.get("train.steps") == 30, f"wandb: train.steps is 30, got {configuration.get('train.steps')}")
    check(any(key.startswith("samples") for _, key in arrived), "wandb: the samples arrived")
    print(f"check_export_run: wandb has the {len(written(run))} numbers, the configuration and the samples")


def check_mlflow(program, run, folder):
    store = (folder / "store").as_uri()
    env = dict(os.environ, MLFLOW_TRACKING_URI=store, MLFLOW_ALLOW_FILE_STORE="true", GIT_PYTHON_REFRESH="quiet")
    subprocess.run([program, "export-run", str(run), "--mlflow", "--project", "p", "--params"], check=True, env=env, cwd=folder)
    os.environ.update(env)
    import mlflow
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("p")
    [found] = client.search_runs([experiment.experiment_id])
    arrived = {}
    for key in found.data.metrics:
        for metric in client.get_metric_history(found.info.run_id, key):
            arrived[(metric.step, key)] = metric.value
    for place, value in written(run).items():
        check(place in arrived and abs(arrived[place] - value) <= 1e-9 * abs(value), f"mlflow: {place} is {value}, got {arrived.get(place)}")
    check(found.data.params["train.steps"] == "30", "mlflow: train.steps is 30")
    check(found.info.status == "FINISHED" and found.info.run_name == run.name, "mlflow: the run has its name and has finished")
    check(any(key.startswith("params/grad_norm/") for key in found.data.metrics), "mlflow: the norms of the parameters arrived")
    files = [file.path for file in client.list_artifacts(found.info.run_id, "samples")]
    check(files == sorted(f"samples/{path.name}" for path in (run / "samples").iterdir()), f"mlflow: the samples arrived, got {files}")
    print(f"check_export_run: mlflow has the {len(written(run))} numbers, the configuration and the samples")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=str(ROOT / "build/release/ingot"))
    program = parser.parse_args().program
    os.environ.setdefault("INGOT_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        (folder / "text.txt").write_text("the cat sat on the mat. a dog ran. " * 2000)
        run = folder / "small"
        subprocess.run([program, "train", "tiny-llama", "--data", str(folder / "text.txt"), "--out", str(run), "--set", "train.steps=30", "--set",
                        "train.threads=1", "--set", "train.stats_every=10", "--set", "eval.every=10", "--set", "sample.every=10"], check=True,
                       stdout=subprocess.DEVNULL)
        check_wandb(program, run, folder)
        (folder / "live").mkdir()
        check_wandb(program, run, folder / "live", "--follow")
        check(json.loads((run / "wandb.json").read_text())["step"] == 30, "wandb: the last step is in wandb.json")
        check_mlflow(program, run, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
