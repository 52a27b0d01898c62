#!/usr/bin/env python3
"""Trains on two hosts that are network namespaces of this machine, joined by a cable that is cut, slowed and shaken.

  bench/chaos/hosts.py [--count 13] [--seed N] [--pty] [--short]       # needs root, ip and mpirun

Each host has a name, an address (10.213.0.0/24, in the namespaces only), and one of two ranks. mpirun starts the rank of the
other host by `ip netns exec` in place of ssh, and ranks talk by TCP over a bridge, which has a namespace of its own.
  cut2, cut10, cut60  the cable is cut for so many seconds
  host                all processes of the second host are killed
  slow                one megabit per second, for five seconds (tc tbf)
  shake               the cable is cut for 50 ms, 20 times
  delay, loss         100 ms, and 2 % of the packets, for five seconds (tc netem; skipped where the kernel lacks it)
Without `ingot launch` a run goes on, or ends within a minute, names a rank or operation, and can be resumed. With it, the run
is completed without help, by name of what happened. If the layout stayed, losses and checkpoints are those of an undisturbed run.
"""
import os
import shutil
import signal
import subprocess
import sys
import time

import chaos

FAULTS = ["cut2", "host", "slow", "shake", "cut10", "delay", "loss", "cut60"]
STEPS = {"train.steps": 400, "checkpoint.every": 20, "train.batch_size": 4, "train.grad_accum": 2, "parallel.dp": 2,
         "checkpoint.at_start": "true"}
NETWORK, HOSTS = "10.213.0", 2
MOST_TO_END_S = 60  # after the fault, without `launch`; the limit of a step is 5 s here


def call(*words):
    """Returns what the command says about its failure; '' if it succeeds."""
    done = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    return done.stderr.strip() or f"exit code {done.returncode}" if done.returncode else ""


class Network:
    """The namespaces ingot-PID-0, ingot-PID-1 and ingot-PID-bridge; `close` removes them."""

    def __init__(self, folder):
        self.prefix, self.folder = f"ingot-{os.getpid()}", folder
        self.made = []

    def open(self):
        """Returns what prevents it, or ''."""
        bridge = f"{self.prefix}-bridge"
        steps = [("add", bridge), ("in", bridge, "ip", "link", "add", "br0", "type", "bridge"),
                 ("in", bridge, "ip", "link", "set", "br0", "up")]
        for host in range(HOSTS):
            name = self.name(host)
            steps += [("add", name), ("in", bridge, "ip", "link", "add", f"port{host}", "type", "veth", "peer", "name", "eth0",
                                      "netns", name),
                      ("in", bridge, "ip", "link", "set", f"port{host}", "master", "br0", "up"),
                      ("in", name, "ip", "addr", "add", f"{NETWORK}.{host + 1}/24", "dev", "eth0"),
                      ("in", name, "ip", "link", "set", "eth0", "up"), ("in", name, "ip", "link", "set", "lo", "up")]
        for kind, name, *words in steps:
            if kind == "add":
                self.made.append(name)
            why = call("ip", "netns", "add", name) if kind == "add" else self.inside(name, *words)
            if why:
                return f"{' '.join([kind, name, *words])}: {why}"
        self.write_agent()
        return ""

    def name(self, host):
        return f"{self.prefix}-{host}"

    def inside(self, name, *words):
        return call("ip", "netns", "exec", name, *words)

    def enter(self, host, words):
        """Returns the command that runs `words` on a host."""
        return ["ip", "netns", "exec", self.name(host), "unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"',
                f"host-{host}", *words]

    def write_agent(self):
        """Writes the program that mpirun calls in place of ssh: AGENT ADDRESS COMMAND ..."""
        self.agent = self.folder / "agent"
        self.agent.write_text(
            "#!/bin/sh\naddress=$1; shift\nhost=$((${address##*.} - 1))\n"
            # A host that cannot be reached does not answer a connection either.
            f"ping -c 1 -W 3 \"$address\" >/dev/null 2>&1 || ! command -v ping >/dev/null || exit 255\n"
            f"exec ip netns exec {self.prefix}-$host unshare --uts sh -c 'hostname \"$0\" && exec sh -c \"$1\"' "
            "host-$host \"$*\"\n")
        self.agent.chmod(0o755)

    def environment(self):
        subnet = f"{NETWORK}.0/24"
        return {"OMPI_MCA_plm_rsh_agent": str(self.agent), "OMPI_MCA_btl": "tcp,self", "OMPI_MCA_pml": "ob1",
                "OMPI_MCA_btl_tcp_if_include": subnet, "OMPI_MCA_oob_tcp_if_include": subnet,
                "OMPI_MCA_orte_keep_fqdn_hostnames": "1"}

    def cable(self, state):
        self.inside(f"{self.prefix}-bridge", "ip", "link", "set", "port1", state)

    def shape(self, *words):
        """Adds a queue discipline to the second host's cable. Returns what prevents it."""
        return self.inside(self.name(1), "tc", "qdisc", "add", "dev", "eth0", "root", *words)

    def unshape(self):
        self.inside(self.name(1), "tc", "qdisc", "del", "dev", "eth0", "root")

    def processes(self, host):
        done = subprocess.run(["ip", "netns", "pids", self.name(host)], stdout=subprocess.PIPE, text=True, check=False)
        return [int(pid) for pid in done.stdout.split()]

    def close(self):
        for host in range(HOSTS):
            for pid in self.processes(host):
                chaos.send(pid, signal.SIGKILL)
        for name in self.made:
            call("ip", "netns", "del", name)


def addresses():
    return ",".join(f"{NETWORK}.{host + 1}:1" for host in range(HOSTS))


def command_words(test, out, with_launch, is_resume=False):
    train = ["train", "--resume", "--out", str(out)] if is_resume else test.train(out, STEPS)
    if with_launch:
        return [test.program, "launch", "--hosts", addresses(), "--", *test.train(out, STEPS)]
    return ["mpirun", "-n", str(HOSTS), "--host", addresses(), test.program, *train]


def start(test, network, words):
    return chaos.Command(network.enter(0, words), has_terminal=test.options.pty, environment=network.environment())


def disturb(test, network, fault, out, with_launch):
    """Carries out a fault. Returns why it could not be, or ''."""
    if fault.startswith("cut"):
        network.cable("down")
        time.sleep(0.2)
        before = chaos.last_step(out)
        time.sleep(float(fault[3:]) - 0.2)
        after = chaos.last_step(out)
        network.cable("up")
        if not with_launch and after > before + 1:
            test.fail(f"{fault}: step {after} was made while the cable was cut at step {before}")
    elif fault == "host":
        for pid in network.processes(1):
            chaos.send(pid, signal.SIGKILL)
    elif fault == "shake":
        for _ in range(20):
            network.cable("down")
            time.sleep(0.05)
            network.cable("up")
            time.sleep(0.2)
    else:
        words = {"slow": ["tbf", "rate", "1mbit", "burst", "16kb", "latency", "400ms"],
                 "delay": ["netem", "delay", "100ms"], "loss": ["netem", "loss", "2%"]}[fault]
        if why := network.shape(*words):
            return why
        time.sleep(5)
        network.unshape()
    return ""


def check(test, network, fault, with_launch, calm, kinds):
    out = test.folder / f"run-{fault}-{with_launch}"
    where = f"{fault}, {'with' if with_launch else 'without'} launch"
    command = start(test, network, command_words(test, out, with_launch))
    faults = []
    if not chaos.wait_until(lambda: chaos.last_step(out) > 25 or not command.is_running()):
        faults.append("the run makes no step")
    if why := disturb(test, network, fault, out, with_launch):
        command.signal(signal.SIGTERM)
        command.wait(30)
        print(f"{test.name}: {fault}: left out, because this kernel or tc refuses it: {why.splitlines()[0]}", flush=True)
        return
    begin = time.monotonic()
    outcome = command.wait(chaos.LONGEST_S if with_launch else MOST_TO_END_S)
    took_s = time.monotonic() - begin
    kind = "went on" if outcome.code == 0 else "ended by name"
    if with_launch and "launch: " in outcome.output:
        kind = "started again"
    if outcome.code == 124:
        faults.append(f"did not end within {took_s:.0f} s after the fault")
    elif outcome.code and with_launch:
        faults.append(f"launch gave up with {outcome.code}")
    elif outcome.code:
        if "rank" not in outcome.output:
            faults.append("the end names no rank")
        outcome = start(test, network, command_words(test, out, False, is_resume=bool(chaos.checkpoints(out)))).wait()
        faults += [f"the resumed run ends with {outcome.code}"] if outcome.code else []
    is_smaller = "going on with dp=1" in outcome.output
    if len(chaos.losses(out)) != STEPS["train.steps"]:
        faults.append(f"{len(chaos.losses(out))} of {STEPS['train.steps']} steps have a loss")
    faults += [] if is_smaller else chaos.differences(out, calm)
    kinds[kind] = kinds.get(kind, 0) + 1
    print(f"  {where}: {kind}{' on fewer ranks' if is_smaller else ''}, {took_s:.1f} s after the fault", flush=True)
    if faults:
        test.fail(f"{where}: {'; '.join(faults)}", outcome.output)
    test.done += 1


def main():
    test = chaos.Chaos(__doc__, 2 * len(FAULTS), 2, "faults of hosts")
    tools = [name for name in ("ip", "mpirun", "unshare", "hostname") if not shutil.which(name)]
    network, kinds = Network(test.folder), {}
    why = f"there is no {tools[0]}" if tools else "it needs root" if os.geteuid() else ""
    try:
        why = why or network.open()
        if not why:
            calm = test.folder / "calm"
            outcome = start(test, network, ["mpirun", "-n", str(HOSTS), "--host", addresses(), test.program,
                                            *test.train(calm, STEPS | {"checkpoint.keep": 1000000})]).wait(120)
            if outcome.code:
                test.fail("the undisturbed run", outcome.output)
            else:
                plan = [(fault, with_launch) for fault in FAULTS for with_launch in (False, True)]
                for fault, with_launch in plan[:test.count]:
                    check(test, network, fault, with_launch, calm, kinds)
    finally:
        network.close()
    if why:
        shutil.rmtree(test.folder)
        chaos.skip(test.name, f"no network namespaces can be made: {why}")
    return test.finish(", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())))


if __name__ == "__main__":
    sys.exit(main())
