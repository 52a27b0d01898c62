#!/usr/bin/env python3
"""Runs Ingot's ranks on hosts that SimGrid simulates, or under mpirun, and compares losses and operations.

  tools/build.sh smpi ingot && tools/build.sh release ingot       # needs SimGrid (libsimgrid-dev)
  bench/smpi.py [--ranks 16] [--layouts ddp,fsdp,tp,pp,3d] [--compute none|measured] [--text FILE] [--json FILE]
  bench/smpi.py --real [--ranks 2,4,8] [--delay 5ms] [--json FILE]   # the same runs under mpirun
  bench/smpi.py --both [--ranks 4]                                   # and compares the order of operations

Each run is `ingot bench parallel` with a small model and N ranks. It checks that the losses agree with those of one
rank to 1e-6 (docs/parallelism.md), and prints the time per step: simulated, or on this machine. With --text FILE
each layout also trains on that text, by `ingot train`, and these losses are compared too. --both also
checks that every rank starts the same operations (group, name, kind, bytes, peer) in the same order in both. The
exit code is 1 if a check fails. On a flat cluster without computation, the simulated sum of the gradients must also
take the time that latency and bandwidth give, and the step of `ingot plan` on the same cluster is printed beside that of
the ranks. With --longest-poll-us 1, which takes the ranks' pauses between two looks at an operation away, it must lie
within 0.8 and 1.25 of it.

The platform is --nodes of equal size. Within a node every rank has its own link to a switch (--latency-us,
--bandwidth-gbps in gigabytes per second), and each node has a link to the other nodes (--node-latency-us,
--node-bandwidth-gbps). --nodes 1 is a flat cluster, and so are ranks that do not fill the nodes evenly. With
--compute measured, SMPI measures the time that a rank computes on this machine and charges it to a host that is
--host-speed times as fast; with none, computing takes no simulated time, so that only communication counts.

--json writes {machine, date, runs: [{where, ranks, layout, platform, step_s, losses, reference_losses, text_losses,
operations: [{rank, step, group, name, kind, bytes, peer, start_s, end_s, wait_s}]}]}. Each rank's operations are in the
order in which it started them, and their times are seconds since that rank began the step.
"""

import argparse
import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOLERANCE = 1e-6  # docs/parallelism.md, "How equal the results are"
STEPS = 3
TEXT_STEPS = 5
POLL_S = 1e-6  # of the first 32 polls of an operation (bench/smpi/fibers.cpp)


def layouts(ranks):
    """Returns the settings of each layout of `ranks` ranks."""
    cube = {4: (1, 2, 2), 8: (4, 1, 2), 16: (4, 2, 2), 32: (4, 4, 2), 64: (4, 4, 4)}
    pp, dp, tp = cube.get(ranks, (1, ranks, 1))
    return {"ddp": {"dp": ranks}, "fsdp": {"fsdp": ranks}, "tp": {"tp": ranks}, "pp": {"pp": ranks},
            "3d": {"pp": pp, "dp": dp, "tp": tp}}


def model(layout, ranks):
    """Returns the settings of a model that the layout can divide.

    It has a head per rank, and a unit per stage (embedding, blocks, head): more units would be divided among the stages
    by the times that rank 0 measures, which differ from run to run and are zero with --compute none.
    """
    heads = max(ranks, 4)
    layers = max(1, ranks - 2) if layout == "pp" else 2
    width = heads * max(4, 64 // heads // 2 * 2)
    return {"model.layers": layers, "model.heads": heads, "model.kv_heads": heads, "model.width": width,
            "model.ffn": 512, "model.context": 32, "data.tokenizer": "byte", "train.batch_size": 8,
            "train.grad_accum": 1 if layout == "tp" else 8, "train.threads": 1}


def write_platform(args, ranks, folder):
    """Writes the platform file and the list of hosts, and returns their paths."""
    nodes = args.nodes if ranks % args.nodes == 0 and ranks > args.nodes else 1
    per_node = ranks // nodes
    lines = ["<?xml version='1.0'?>", '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">',
             '<platform version="4.1">', '<zone id="all" routing="Full">']
    link = f'speed="1Gf" bw="{args.bandwidth_gbps}GBps" lat="{args.latency_us}us"'
    for n in range(nodes):
        lines.append(f'<cluster id="node-{n}" prefix="host-" suffix="" router_id="router-{n}" '
                     f'radical="{n * per_node}-{(n + 1) * per_node - 1}" {link}/>')
    for n in range(nodes if nodes > 1 else 0):
        lines.append(f'<link id="uplink-{n}" bandwidth="{args.node_bandwidth_gbps}GBps" '
                     f'latency="{args.node_latency_us}us" sharing_policy="SPLITDUPLEX"/>')
    for a in range(nodes):
        for b in range(nodes):
            if a != b:
                lines.append(f'<zoneRoute src="node-{a}" dst="node-{b}" gw_src="router-{a}" gw_dst="router-{b}" '
                             f'symmetrical="NO"><link_ctn id="uplink-{a}" direction="UP"/>'
                             f'<link_ctn id="uplink-{b}" direction="DOWN"/></zoneRoute>')
    lines += ["</zone>", "</platform>"]
    path, hosts = folder / "platform.xml", folder / "hosts"
    path.write_text("\n".join(lines) + "\n")
    hosts.write_text("".join(f"host-{r}\n" for r in range(ranks)))
    return path, hosts, nodes


def smpi_command(args, ranks, folder):
    """Returns the command that starts simulated ranks, without the program's arguments."""
    path, hosts, _ = write_platform(args, ranks, folder)
    build = args.smpi_build.resolve()
    threads = build / "libingot_smpi_threads.so"
    options = {"smpi/simulate-computation": "no" if args.compute == "none" else "yes",
               "smpi/host-speed": f"{1e9 / args.host_speed}f",  # seconds here, as work for a host of 1 Gf
               # SMPI would add time to each poll, more each time. A yield between polls takes a microsecond already.
               "smpi/wtime": 0, "smpi/test": 0, "smpi/iprobe": 0, "smpi/grow-injected-times": "no",
               "smpi/cpu-threshold": 1e-7, "contexts/stack-size": 8192, "smpi/tmpdir": folder,
               # A message takes its links' latencies and its bytes over the bandwidth that it gets; SMPI's own
               # factors fit a cluster with gigabit Ethernet.
               "smpi/bw-factor": "0:1", "smpi/lat-factor": "0:1", "network/crosstraffic": "no",
               "network/weight-S": 0, "network/TCP-gamma": 0}
    return ["smpirun", "-np", str(ranks), "-platform", str(path), "-hostfile", str(hosts),
            "-wrapper", f"env LD_PRELOAD={threads}", "--log=root.thres:warning",
            *(f"--cfg={key}:{value}" for key, value in options.items()), str(build / "ingot")]


def mpirun_command(args, ranks):
    program = args.release_build.resolve() / "ingot"
    return ["mpirun", "-n", str(ranks), "--oversubscribe", "--bind-to", "none", str(program)]


def execute(where, args, ranks, arguments, folder):
    """Runs `ingot ARGUMENTS` on each rank and returns what rank 0 printed."""
    environment = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                                "OMP_WAIT_POLICY": "passive"}
    if where == "smpi":
        command = smpi_command(args, ranks, folder)
        environment["PMI_SIZE"] = str(ranks)
        environment["INGOT_SMPI_LONGEST_POLL_US"] = str(args.longest_poll_us)
    elif ranks == 1:
        command = [str(args.release_build.resolve() / "ingot")]
    else:
        command = mpirun_command(args, ranks)
    command += arguments
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        sys.exit(f"smpi.py: {ranks} ranks ({where}) failed with {done.returncode}:\n{' '.join(command)}\n"
                 f"{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


def train(where, args, ranks, settings, folder):
    """Returns the losses of a short training on the text."""
    if not args.text:
        return []
    with tempfile.TemporaryDirectory(dir=folder) as out:
        execute(where, args, ranks, ["train", "tiny-llama", "--data", str(args.text.resolve()), "--out", f"{out}/run",
                                     "--set", f"train.steps={TEXT_STEPS}", *settings], folder)
        lines = (json.loads(line) for line in (Path(out) / "run/metrics.jsonl").read_text().splitlines())
        return [line["loss"] for line in lines if "loss" in line]


def run(where, args, ranks, layout, settings, folder):
    """Runs one layout and returns its record."""
    parallel = layouts(ranks)[layout] if ranks > 1 else {}
    settings = settings | {f"parallel.{axis}": n for axis, n in parallel.items()}
    if where == "mpirun":
        settings["parallel.delay"] = args.delay
    settings = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    begin = time.monotonic()
    steps = ["bench", "parallel", "tiny-llama", "--steps", str(STEPS), "--json"]
    printed = execute(where, args, ranks, [*steps, *settings], folder)
    lines = [line for line in printed.splitlines() if line.startswith('{"ranks"')]
    if len(lines) != 1:
        sys.exit(f"smpi.py: {layout} on {ranks} ranks ({where}) printed {len(lines)} results, not one:\n{printed}")
    record = {"where": where, "platform": None} | json.loads(lines[0])
    record["text_losses"] = train(where, args, ranks, settings, folder)
    record["wall_s"] = time.monotonic() - begin
    record["layout"] = layout
    if where == "smpi":
        record["platform"] = {key: vars(args)[key] for key in
                              ("latency_us", "bandwidth_gbps", "node_latency_us", "node_bandwidth_gbps", "compute",
                               "host_speed")} | {"nodes": write_platform(args, ranks, folder)[2]}
    return record


def order(record):
    """Returns each rank's operations in the order of their starts, without times."""
    ranks = [[] for _ in range(record["ranks"])]
    for o in record["operations"]:
        ranks[o["rank"]].append((o["step"], o["group"], o["name"], o["kind"], o["bytes"], o["peer"]))
    return ranks


def first_difference(one, other):
    """Returns a line about the first operation that differs between two records; None if there is none."""
    for rank, (a, b) in enumerate(zip(order(one), order(other))):
        for i in range(max(len(a), len(b))):
            x, y = (list[i] if i < len(list) else "nothing" for list in (a, b))
            if x != y:
                return f"rank {rank}, operation {i}: {one['where']} starts {x}, {other['where']} {y}"
    return None


def loss_difference(record):
    """Returns the largest relative difference from the losses of one rank."""
    own = record["losses"] + record["text_losses"]
    pairs = list(zip(own, record["reference_losses"], strict=True))
    return max(abs(a - b) / abs(b) for a, b in pairs)


def expected_all_reduce_s(record, operation):
    """Returns the time of an all_reduce on a flat cluster where nothing computes; None if polls would hide it.

    In each of its two phases a rank sends a slice to every other rank through its own link: a message crosses two
    links, and a link carries all slices but the rank's own.
    """
    p = record["platform"]
    bytes_of_phase = operation["bytes"] * (record["ranks"] - 1) / record["ranks"]
    phase_s = 2e-6 * p["latency_us"] + bytes_of_phase / (1e9 * p["bandwidth_gbps"])
    return 2 * phase_s if p["nodes"] == 1 and p["compute"] == "none" and phase_s < 32 * POLL_S else None


def time_differences(record):
    """Returns lines about simulated gradient sums that miss the expected time by more than a poll per phase and one."""
    lines = []
    for o in record["operations"] if record["where"] == "smpi" and record["layout"] == "ddp" else []:
        expected = expected_all_reduce_s(record, o) if o["name"].startswith("gradients") else None
        if expected and abs(o["end_s"] - o["start_s"] - expected) > 3 * POLL_S:
            took_us, expected_us = 1e6 * (o["end_s"] - o["start_s"]), 1e6 * expected
            lines.append(f"rank {o['rank']}: {o['name']} of step {o['step']} took {took_us:.2f} us instead of "
                         f"{expected_us:.2f}")
    return lines


def hardware_toml(args, ranks, layout):
    """Returns a description for `ingot plan`: a flat cluster on which nothing computes.

    SMPI's collectives exchange slices with all ranks of a group at once: the bytes over each link are those of a ring, and
    the latency is that of two links in each of a collective's phases, and in a message. The plan's rings have n - 1 steps
    per phase in a group of n ranks. With stages alone, which send messages, the latency is that of a launch instead.
    """
    path_s = 2e-6 * args.latency_us
    group = layouts(ranks)[layout]["tp"] if layout == "3d" else ranks
    step_s, launch_s = (0, path_s) if layout == "pp" else (path_s / max(1, group - 1), 0)
    never = 1.0  # second: an algorithm that is never the fastest
    values = {
        "device": {"f32_flops": 1e24, "tf32_flops": 1e24, "bf16_flops": 1e24, "fp8_flops": 1e24, "hbm_bytes": 1e12,
                   "hbm_bytes_per_s": 1e24, "kernel_launch_s": 1e-15, "product_fraction": 1.0, "memory_fraction": 1.0,
                   "power_w": 1.0, "price_per_hour": 0.0},
        "node": {"devices": ranks, "topology": '"switch"', "link_bytes_per_s": 1e9 * args.bandwidth_gbps,
                 "link_fraction": 1.0, "ring_latency_s": [step_s, never, never], "tree_latency_s": [never] * 3},
        "network": {"nics": 1, "nic_bytes_per_s": 1e12, "nic_fraction": 1.0, "nodes_per_rack": 1,
                    "rack_uplink_bytes_per_s": 0, "ring_latency_s": [never] * 3, "tree_latency_s": [never] * 3},
        "collectives": {"launch_s": [launch_s, never, never]},
    }
    lines = ['name = "flat"']
    for section, pairs in values.items():
        lines += [f"[{section}]", *(f"{key} = {value}" for key, value in pairs.items())]
    return "\n".join(lines) + "\n"


def planned_step_s(args, ranks, layout, settings, folder):
    """Returns the time that `ingot plan` simulates for the step that SMPI's ranks executed."""
    parallel = layouts(ranks)[layout]
    path = folder / "flat.toml"
    path.write_text(hardware_toml(args, ranks, layout))
    settings = settings | {f"parallel.{axis}": n for axis, n in parallel.items()}
    command = [str(args.release_build.resolve() / "ingot"), "plan", "tiny-llama", "--json", "--hardware", str(path)]
    command += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"smpi.py: {' '.join(command)} failed with {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)["step_s"]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--real", action="store_true", help="under mpirun only")
    where.add_argument("--both", action="store_true", help="simulated and under mpirun")
    parser.add_argument("--ranks", default="16")
    parser.add_argument("--layouts", default="ddp,fsdp,tp,pp,3d")
    parser.add_argument("--text", type=Path, help="a text to train on, such as README.md")
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--latency-us", type=float, default=2)
    parser.add_argument("--bandwidth-gbps", type=float, default=100)
    parser.add_argument("--node-latency-us", type=float, default=5)
    parser.add_argument("--node-bandwidth-gbps", type=float, default=25)
    parser.add_argument("--compute", choices=["none", "measured"], default="none")
    parser.add_argument("--host-speed", type=float, default=1)
    parser.add_argument("--longest-poll-us", type=float, default=200, help="pause between two looks at an operation")
    parser.add_argument("--delay", default="0s", help="parallel.delay of the runs under mpirun")
    parser.add_argument("--smpi-build", type=Path, default=ROOT / "build/smpi")
    parser.add_argument("--release-build", type=Path, default=ROOT / "build/release")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if not all(word.isdigit() and int(word) > 1 for word in args.ranks.split(",")):
        sys.exit(f"smpi.py: --ranks {args.ranks}: expected numbers above 1, such as 2,4,8")
    for layout in args.layouts.split(","):
        if layout not in layouts(2):
            sys.exit(f"smpi.py: --layouts {layout}: expected some of {','.join(layouts(2))}")
    if args.text and not args.text.is_file():
        sys.exit(f"smpi.py: --text {args.text}: no such file")
    programs = {args.release_build / "ingot": "run tools/build.sh release ingot"}
    if not args.real:
        if not shutil.which("smpirun"):
            sys.exit("smpi.py: smpirun is not installed; install libsimgrid-dev")
        programs[args.smpi_build / "ingot"] = "run tools/build.sh smpi ingot"
    for program, fix in programs.items():
        if not program.is_file():
            sys.exit(f"smpi.py: {program} is missing; {fix}")
    return args


def main():
    args = parse()
    places = ["mpirun"] if args.real else ["smpi", "mpirun"] if args.both else ["smpi"]
    records, failures, references = [], [], {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for ranks in map(int, args.ranks.split(",")):
            for layout in args.layouts.split(","):
                settings = model(layout, ranks)
                key = json.dumps(settings)
                if key not in references:
                    alone = run("alone", args, 1, layout, settings, folder)
                    references[key] = alone["losses"] + alone["text_losses"]
                here = []
                for where in places:
                    record = run(where, args, ranks, layout, settings, folder)
                    record["reference_losses"] = references[key]
                    here.append(record)
                    difference = loss_difference(record)
                    print(f"{where:<7} {ranks:>3} ranks {layout:<5} step {1e3 * record['step_s']:>9.3f} ms, "
                          f"{len(record['operations']) // STEPS:>6} operations per step, losses within "
                          f"{difference:.1e} of one rank's, run in {record['wall_s']:.1f} s", flush=True)
                    if where == "smpi" and record["platform"]["nodes"] == 1 and args.compute == "none":
                        planned = planned_step_s(args, ranks, layout, settings, folder)
                        print(f"        {ranks:>3} ranks {layout:<5} the plan's {1e3 * planned:>9.3f} ms, "
                              f"{planned / record['step_s']:.2f} of it", flush=True)
                        if args.longest_poll_us <= 1 and not 0.8 < planned / record["step_s"] < 1.25:
                            failures.append(f"{layout} on {ranks} ranks: the plan's step takes {1e3 * planned:.3f} ms")
                    failures += time_differences(record)[:1]
                    if difference > TOLERANCE:
                        failures.append(f"{where}, {layout} on {ranks} ranks: the losses differ by {difference:.1e}")
                if len(here) == 2:
                    line = first_difference(*here)
                    print(f"        {ranks:>3} ranks {layout:<5} order of operations: {line or 'the same'}", flush=True)
                    if line:
                        failures.append(f"{layout} on {ranks} ranks: {line}")
                records += here
    if args.json:
        args.json.write_text(json.dumps({"machine": f"{platform.machine()}, {os.cpu_count()} cores",
                                         "date": datetime.date.today().isoformat(), "runs": records}))
    for failure in failures:
        print(f"smpi.py: {failure}", file=sys.stderr)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
