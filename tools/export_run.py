#!/usr/bin/env python3
"""Sends a finished or running run's folder to Weights & Biases or MLflow: configuration, metrics with their steps, samples
and how the run ended. `ingot export-run` calls it; it needs `pip install wandb` or `pip install mlflow`, and nothing of Ingot.

With --follow it sends every step as soon as the run has written the next one, until the run has ended. RUN/wandb.json then has the
id of the run there and the last step that was sent, so that it can be stopped and started again. It changes nothing else in RUN.

Usage: export_run.py RUN (--wandb | --mlflow) [--follow] [--project NAME] [--name NAME] [--to URI] [--params]"""
import argparse
import datetime
import heapq
import itertools
import json
import math
import os
import pathlib
import re
import secrets
import stat
import sys
import time

MOST_BYTES = 1 << 20  # of a sample, a configuration and a line
BATCH = 900           # MLflow takes at most 1000 metrics at once
MOST_ROWS = 1000      # of W&B's table of samples, which is kept in memory
POLL_S = 1            # between two looks at a run that is followed
AGAIN_S = 30          # for which a run that has failed or was interrupted may be started again
SILENT_S = 600        # without a heartbeat, after which a run has died


def fail(message, code=2):
    print(f"ingot export-run: {message}", file=sys.stderr)
    sys.exit(code)


def open_plain(path):
    """Opens a regular file that is no link; None if it is anything else."""
    try:
        if stat.S_ISREG(path.lstat().st_mode):
            return open(path, encoding="utf-8", errors="replace", newline="\n")
    except OSError:
        pass
    return None


def read_plain(path):
    file = open_plain(path)
    if file is None:
        return ""
    with file:
        return file.read(MOST_BYTES)


def lines(file):
    """Yields the complete lines. Those longer than MOST_BYTES are passed over without being kept in memory."""
    is_rest = False
    while line := file.readline(MOST_BYTES):
        if line.endswith("\n") and not is_rest:
            yield line
        is_rest = not line.endswith("\n")


def rows(path):
    """Yields the complete lines of a .jsonl file that are objects with a step, as (step, object)."""
    file = open_plain(path)
    if file is None:
        return
    with file:
        yield from map(step_of, filter(None, map(parse, lines(file))))


def parse(line):
    """The object of a line if it has a step."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    is_step = isinstance(row, dict) and isinstance(row.get("step"), (int, float)) and math.isfinite(row["step"])
    return row if is_step else None


def step_of(row):
    return int(row["step"]), row


def has_ended(run, quiet_s):
    """Returns True if a run that has written nothing for quiet_s will write no more."""
    try:
        status = json.loads(read_plain(run / "run.json")).get("status")
    except (ValueError, AttributeError):
        status = "running"  # it has not begun
    if status != "running":
        return status in ("completed", "stopped") or quiet_s > AGAIN_S
    try:
        beat_s = time.time() - (run / "heartbeat.json").stat().st_mtime
    except OSError:
        beat_s = quiet_s
    return min(quiet_s, beat_s) > SILENT_S


def followed(run):
    """Yields what rows() does for metrics.jsonl, and waits for more until the run has ended. A file that was cut or replaced, as by
    a run that is resumed, is read again from its beginning."""
    path, at, inode, wrote = run / "metrics.jsonl", 0, None, time.monotonic()
    while True:
        is_end = has_ended(run, time.monotonic() - wrote)  # before the file is read to its end
        if file := open_plain(path):
            with file:
                found = os.fstat(file.fileno())
                if found.st_ino != inode or found.st_size < at:
                    at, inode = 0, found.st_ino
                file.seek(at)
                for line in lines(file):
                    at, wrote = file.tell(), time.monotonic()
                    if row := parse(line):
                        yield step_of(row)
        if is_end:
            return
        time.sleep(POLL_S)


def numbers(row):
    return {key: value for key, value in row.items()
            if key != "step" and isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)}


def metrics(run, with_params, follows=False):
    """Yields (step, numbers) with rising steps: what a step, its evaluation and its events say together."""
    merged = followed(run) if follows else rows(run / "metrics.jsonl")
    if with_params:
        norms = ((step, {f"params/{key}/{row.get('param', '')}": value for key, value in numbers(row).items()})
                 for step, row in rows(run / "params.jsonl"))
        merged = heapq.merge(merged, norms, key=lambda pair: pair[0])
    time_s, last = 0.0, -1
    for step, group in itertools.groupby(merged, key=lambda pair: pair[0]):
        values = {}
        for _, row in group:
            values |= numbers(row)
        if "step_ms" in values:
            time_s += values["step_ms"] / 1e3
            values["train_time_s"] = time_s
        if values and step > last:  # a file that was damaged may go back
            last = step
            yield step, values


def config(run):
    """The configuration as {"section.key": value}."""
    out, section = {}, ""
    for line in read_plain(run / "config.toml").splitlines():
        head = re.match(r"\[+([\w.]+)\]+", line)
        pair = re.match(r"(\w+) = (\"(?:[^\"\\]|\\.)*\"|\[.*?\]|[^#\s]+)", line)
        if head:
            section = head[1] + "."
        elif pair:
            key, text = section + pair[1], pair[2]
            while key in out:  # the groups of an optimizer have the same keys
                key += "'"
            try:
                out[key] = json.loads(text)
            except ValueError:
                out[key] = text
    return out


def samples(run):
    """Yields (step, name, text) of every sample, the newest first."""
    folder = run / "samples"
    if folder.is_symlink() or not folder.is_dir():
        return
    for path in sorted(folder.iterdir(), reverse=True):
        found = re.fullmatch(r"step-(\d+)\.txt", path.name)
        text = read_plain(path) if found else ""
        if text:
            yield int(found[1]), path.name, text


def record(run):
    try:
        found = json.loads(read_plain(run / "run.json"))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("status"), str):
        fail(f"{run} holds no run (no run.json with a status); name a run's folder")
    return found


def begin_ms(found):
    try:
        return int(datetime.datetime.strptime(found["begin"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=datetime.timezone.utc).timestamp() * 1e3)
    except (KeyError, TypeError, ValueError):
        return 0


def summary(found):
    return {key: value for key, value in found.items() if isinstance(value, (str, int, float)) and key != "config_hash"}


class Sent:
    """RUN/wandb.json: the id of the run there, and the last step that was sent, which is written before the step is sent."""

    def __init__(self, run):
        self.path = run / "wandb.json"
        try:
            saved = json.loads(read_plain(self.path) or "{}")
            self.id, self.step = str(saved.get("id", "")), int(saved.get("step", -1))
        except (ValueError, AttributeError, TypeError) as problem:
            fail(f"{self.path} is damaged ({problem}); remove it to begin a new run there")
        self.id = self.id or secrets.token_hex(4)

    def takes(self, step):
        if step <= self.step:
            return False
        self.step = step
        temporary = self.path.with_name("wandb.json.tmp")
        temporary.unlink(missing_ok=True)
        with open(temporary, "x", encoding="utf-8") as file:
            json.dump({"id": self.id, "step": step}, file)
        os.replace(temporary, self.path)
        return True


def to_wandb(run, given, found):
    try:
        import wandb
    except ImportError as problem:
        fail(f"this python ({sys.executable}) cannot import wandb ({problem}): pip install wandb")
    settings = {"project": given.project, "name": given.name, "config": config(run), "job_type": "train", "reinit": True}
    if given.to:
        settings["settings"] = wandb.Settings(base_url=given.to)
    sent = Sent(run) if given.follow else None
    if sent:
        settings |= {"id": sent.id, "resume": "allow"}
    target = wandb.init(**settings)
    steps = 0
    for step, values in metrics(run, given.params, given.follow):
        if sent and not sent.takes(step):
            continue
        target.log(values, step=step)
        steps += 1
    if sent:
        found = record(run)
    newest = [list(one) for one in itertools.islice(samples(run), MOST_ROWS)]
    table = wandb.Table(columns=["step", "file", "text"], data=newest[::-1])
    if table.data:
        target.log({"samples": table})
    for key, value in summary(found).items():
        target.summary["run/" + key] = value
    target.finish(exit_code=0 if found["status"] in ("completed", "stopped", "running") else 1)
    return steps, len(table.data)


def to_mlflow(run, given, found):
    try:
        import mlflow
        from mlflow.entities import Metric, Param
    except ImportError as problem:
        fail(f"this python ({sys.executable}) cannot import mlflow ({problem}): pip install mlflow")
    plain = lambda name: re.sub(r"[^\w\-. :/]", "_", name)[:250]
    if given.to:
        mlflow.set_tracking_uri(given.to)
    mlflow.set_experiment(given.project)
    target = mlflow.start_run(run_name=given.name)
    client, identity, start_ms = mlflow.MlflowClient(), target.info.run_id, begin_ms(found)
    pairs = [Param(plain(key), str(value)[:6000]) for key, value in config(run).items()]
    for at in range(0, len(pairs), 90):
        client.log_batch(identity, params=pairs[at:at + 90])
    batch, steps = [], 0
    for step, values in metrics(run, given.params):
        steps += 1
        at_ms = start_ms + int(1e3 * values.get("train_time_s", 0))
        for key, value in values.items():
            batch.append(Metric(plain(key), float(value), at_ms, step))
            if len(batch) == BATCH:
                client.log_batch(identity, metrics=batch)
                batch = []
    client.log_batch(identity, metrics=batch)
    count = 0
    for _, name, text in samples(run):
        mlflow.log_text(text, "samples/" + name)
        count += 1
    for key, value in summary(found).items():
        client.set_tag(identity, "ingot." + key, str(value))
    mlflow.end_run("FINISHED" if found["status"] in ("completed", "stopped") else "RUNNING" if found["status"] == "running" else "FAILED")
    return steps, count


def main():
    parser = argparse.ArgumentParser(prog="ingot export-run", description=__doc__.splitlines()[0])
    parser.add_argument("run", type=pathlib.Path)
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--wandb", action="store_true")
    kind.add_argument("--mlflow", action="store_true")
    parser.add_argument("--project", default="ingot")
    parser.add_argument("--name", default="")
    parser.add_argument("--to", default="")
    parser.add_argument("--params", action="store_true")
    parser.add_argument("--follow", action="store_true")
    given = parser.parse_args()
    given.name = given.name or given.run.resolve().name
    if given.follow and (given.mlflow or given.params):
        fail("--follow sends metrics.jsonl to W&B; export to MLflow, or with --params, when the run has ended")
    if given.follow:
        print(f"following {given.run} until it has ended; Ctrl-C ends this, and not the run", flush=True)
    # A run that was started just now has no step yet.
    while given.follow and next(rows(given.run / "metrics.jsonl"), None) is None and not has_ended(given.run, 0):
        time.sleep(POLL_S)
    found = record(given.run)
    steps, count = (to_wandb if given.wandb else to_mlflow)(given.run, given, found)
    print(f"exported {given.run}: {steps} steps, {count} samples, to {'wandb' if given.wandb else 'mlflow'}, project {given.project}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        fail("interrupted; the same command goes on where it stopped", 75)
