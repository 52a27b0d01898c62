#!/usr/bin/env python3
"""Kills, stops and crashes ranks, their launcher and their supervisor, under eight layouts and `ingot launch`.

  bench/chaos/ranks.py [--count N] [--seed N] [--pty] [--short] [--layouts dp,tp-dp,...] [--set key=value ...]

One round has a fault in each layout, and --count is the number of faults in all: six kinds in eight layouts by default.
  kill        SIGKILL to a rank                        `launch` starts the job again and names the rank
  segfault    SIGSEGV to a rank                        the same
  stop        SIGSTOP to a rank                        the same, as a hang
  mpirun      SIGKILL to mpirun                        the same, naming the launcher
  supervisor  SIGKILL to `ingot launch`                the ranks save and end; the same command goes on
  end         SIGTERM to `ingot launch`                exit code 75; the same command goes on
--set changes the runs, for example to train.device=cuda. The end must have the losses and checkpoints of an undisturbed run of the same layout, with no process left.
"""
import json
import shutil
import signal
import sys
import time

import chaos

LAYOUTS = {"dp": {"dp": 2}, "fsdp": {"fsdp": 2}, "tp": {"tp": 2}, "pp": {"pp": 2}, "dp-fsdp": {"dp": 2, "fsdp": 2},
           "dp-tp": {"dp": 2, "tp": 2}, "pp-dp": {"pp": 2, "dp": 2}, "fsdp-tp": {"fsdp": 2, "tp": 2}}
FAULTS = ["kill", "segfault", "stop", "mpirun", "supervisor", "end"]
SIGNALS = {"kill": signal.SIGKILL, "segfault": signal.SIGSEGV, "stop": signal.SIGSTOP}
KINDS = {"kill": "killed", "segfault": "crashed", "stop": "hang", "mpirun": "killed"}
STEPS = {"train.steps": 400, "checkpoint.every": 20, "train.batch_size": 4, "train.grad_accum": 2, "model.layers": 2,
         "parallel.unit_costs": "counted"}  # equal stages, and so equal bits, at every start
MOST_RECOVERY_S = 60  # generous: a stopped rank is found after 5 s
TRIES = 5  # on a busy machine a run may end before this script has its turn


def settings_of(layout, assignments):
    layout_keys = {f"parallel.{axis}": size for axis, size in LAYOUTS[layout].items()}
    return STEPS | layout_keys | dict(assignment.split("=", 1) for assignment in assignments)


def options(parser):
    parser.add_argument("--layouts", default=",".join(LAYOUTS), help="separated by commas")
    parser.add_argument("--set", action="append", default=[], metavar="key=value", help="may be repeated")


def ranks_of(out, launch):
    return [pid for pid in chaos.processes(out) if pid != launch]


def stop_in_step(test, out, pid):
    """Stops a rank within a step: the limit of a checkpoint is longer than this script waits."""
    for _ in range(200):
        chaos.send(pid, signal.SIGSTOP)
        time.sleep(0.01)
        sign = (out / "heartbeat.json").read_text(errors="replace")
        if '"phase":"step"' in sign:
            return
        chaos.send(pid, signal.SIGCONT)
        time.sleep(test.random.random() * 0.02)


def disturb(test, fault, out, command, steps):
    """Waits for a step, then disturbs the run. Returns whether there was something to disturb."""
    after = test.random.randrange(steps // 16, steps * 5 // 8)
    if not chaos.wait_until(lambda: chaos.last_step(out) > after or not command.is_running()):
        return False
    ranks = ranks_of(out, command.pid)
    if not command.is_running() or not ranks:
        return False
    if fault == "stop":
        stop_in_step(test, out, test.random.choice(ranks))
    elif fault in SIGNALS:
        chaos.send(test.random.choice(ranks), SIGNALS[fault])
    elif fault == "mpirun":
        for pid in chaos.processes(out, "mpirun") + chaos.processes(out, "orterun"):
            chaos.send(pid, signal.SIGKILL)
    else:
        command.signal(signal.SIGKILL if fault == "supervisor" else signal.SIGTERM)
    return True


def incidents(out):
    path = out / "incidents.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def came_late(fault, out, steps):
    """Returns whether the run had made all its steps before it was disturbed."""
    if fault not in KINDS:
        return chaos.last_step(out) == steps
    return all(incident["step"] == steps for incident in incidents(out))


def check_incident(fault, out, recoveries):
    found, faults = incidents(out), []
    if fault not in KINDS:
        return [f"{len(found)} incidents, expected none"] if found else []
    if [incident["kind"] for incident in found] != [KINDS[fault]]:
        return [f"incidents {[(i['kind'], i.get('reason')) for i in found]}, expected one of kind {KINDS[fault]}"]
    if fault != "mpirun" and found[0].get("rank") is None:
        faults.append("the incident names no rank")
    recovery = found[0].get("recovery_s")
    if recovery is None or recovery > MOST_RECOVERY_S:
        faults.append(f"recovered after {recovery} s")
    else:
        recoveries.setdefault(fault, []).append(recovery)
    return faults


def round_of(test, layout, fault, calm, recoveries):
    out = test.folder / f"run-{test.done}"
    settings = settings_of(layout, test.options.set)
    words = ["launch", "--", *test.train(out, settings)]
    steps, is_late = int(settings["train.steps"]), True
    for _ in range(TRIES):
        command = test.command(words)
        has_disturbed = disturb(test, fault, out, command, steps)
        outcome = command.wait()
        have_ended = fault in KINDS or chaos.wait_until(lambda: not ranks_of(out, 0), 30)
        is_late = not has_disturbed or came_late(fault, out, steps)
        if not is_late:
            break
        chaos.end_processes(out)
        shutil.rmtree(out, ignore_errors=True)
    test.done += 1
    if is_late:
        test.fail(f"{layout}, {fault}: {TRIES} runs had made all their steps, or have no incident", outcome.output)
        return
    faults = []
    if fault in ("supervisor", "end"):
        expected = 137 if fault == "supervisor" else 75
        if outcome.code != expected:
            faults.append(f"exit code {outcome.code}, expected {expected}")
        if not have_ended:
            faults.append("ranks are left behind")
        outcome = test.run(words)
    if outcome.code:
        faults.append(f"exit code {outcome.code}")
    if left := ranks_of(out, 0):
        faults.append(f"{len(left)} processes are left")
    faults += chaos.differences(out, calm) + check_incident(fault, out, recoveries)
    if faults:
        test.fail(f"{layout}, {fault}: {'; '.join(faults)}", outcome.output)
    else:
        shutil.rmtree(out, ignore_errors=True)


def main():
    test = chaos.Chaos(__doc__, len(LAYOUTS) * len(FAULTS), 6, "faults", options)
    if not shutil.which("mpirun"):
        chaos.skip(test.name, "there is no mpirun")
    layouts, recoveries, calm = test.options.layouts.split(","), {}, {}
    # Shifted from round to round, so that a small count has different layouts and faults.
    plan = [(layout, FAULTS[(i + shift) % len(FAULTS)]) for shift in range(len(FAULTS))
            for i, layout in enumerate(layouts)]
    for layout, fault in (plan * (1 + test.count // len(plan)))[:test.count]:
        if layout not in calm:
            calm[layout] = test.folder / f"calm-{layout}"
            outcome = test.run(["launch", "--", *test.train(calm[layout], settings_of(layout, test.options.set) |
                                                           {"checkpoint.keep": 1000000})])
            if outcome.code:
                test.fail(f"{layout}: the undisturbed run", outcome.output)
        round_of(test, layout, fault, calm[layout], recoveries)
    times = "; ".join(f"{fault}: {len(all_s)} recovered in {min(all_s):.1f} to {max(all_s):.1f} s"
                      for fault, all_s in recoveries.items())
    return test.finish(f"{len(calm)} layouts; {times}")


if __name__ == "__main__":
    sys.exit(main())
