"""What the scripts of bench/chaos share: options, a small run, processes, and comparisons with an undisturbed run."""
import argparse
import fcntl
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "TERM": "xterm"}
MODEL = {
    "data.tokenizer": "byte", "model.layers": 1, "model.width": 32, "model.heads": 2, "model.context": 32,
    "train.batch_size": 2, "train.grad_accum": 1, "train.threads": 1, "schedule.warmup_steps": 2, "sample.count": 0,
    "eval.every": 0, "eval.max_tokens": 256}
MIXED = {"precision.compute": "bf16", "model.dropout": 0.1, "optimizer.ema": 0.9}
FREE_LINES = re.compile(rb'keep |stop_at |at_start |timeout |\{"name": "config.toml"|"self_xxh3_64"')
LONGEST_S = 300  # a command that takes longer has hung


class Outcome:
    """How a command ended: its exit code (128 + the number of a signal) and what it printed."""

    def __init__(self, code, output):
        self.code, self.output = code, output


class Command:
    """A command in the background, whose output is collected; under a terminal of its own if asked for."""

    def __init__(self, words, has_terminal=False, environment=None, folder=None):
        self.bytes, self.words = bytearray(), words
        env = os.environ | ENVIRONMENT | (environment or {})
        env = {name: value for name, value in env.items() if value is not None}
        self.master, output = os.openpty() if has_terminal else os.pipe()

        def lead_session():
            os.setsid()
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the script itself may run under nohup, which Ingot would respect
            if has_terminal:
                fcntl.ioctl(output, termios.TIOCSCTTY, 0)

        self.child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=env, cwd=folder,
                                      preexec_fn=lead_session)
        os.close(output)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        while True:
            try:
                block = os.read(self.master, 65536)
            except OSError:  # the last process of a terminal has ended
                return
            if not block:
                return
            self.bytes += block

    @property
    def pid(self):
        return self.child.pid

    @property
    def output(self):
        return bytes(self.bytes).decode(errors="replace").replace("\r\n", "\n")

    def signal(self, number):
        if self.child.poll() is None:
            self.child.send_signal(number)

    def is_running(self):
        return self.child.poll() is None

    def wait(self, limit_s=LONGEST_S):
        """Returns the outcome. Code 124: the command was killed because it took longer than the limit."""
        try:
            code = self.child.wait(limit_s)
            code = code if code >= 0 else 128 - code
        except subprocess.TimeoutExpired:
            os.killpg(self.child.pid, signal.SIGKILL)
            self.child.wait()
            code = 124
        self.reader.join(1)
        if not self.reader.is_alive():
            os.close(self.master)
        return Outcome(code, self.output)


class Chaos:
    """One script: its options, its folder, its random numbers, and its failures."""

    def __init__(self, description, count, short, unit, more=None):
        parser = argparse.ArgumentParser(description=description.split("\n", 1)[0])
        parser.add_argument("--program", default=str(ROOT / "build/release/ingot"))
        parser.add_argument("--seed", type=int, default=None, help="of the faults; printed; default: a random one")
        parser.add_argument("--count", type=int, default=None, help=f"{unit}; default {count}")
        parser.add_argument("--short", action="store_true", help=f"{short} instead of {count} {unit}")
        parser.add_argument("--pty", action="store_true", help="run the program under a terminal")
        parser.add_argument("--keep", action="store_true", help="keep the folder")
        if more:
            more(parser)
        self.options = parser.parse_args()
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was mounted or made is removed
        self.unit, self.failures, self.done = unit, [], 0
        self.count = self.options.count if self.options.count is not None else short if self.options.short else count
        self.seed = self.options.seed if self.options.seed is not None else random.SystemRandom().randrange(1 << 31)
        self.random = random.Random(self.seed)
        self.program = str(pathlib.Path(self.options.program).resolve())
        if not pathlib.Path(self.program).exists():
            sys.exit(f"{self.program}: there is no program; build it first (cmake --build --preset release)")
        self.name = pathlib.Path(sys.argv[0]).name
        self.start_s = time.monotonic()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ingot-chaos-", dir=fast_folder()))
        self.text = self.folder / "text.txt"
        self.text.write_text("".join("the cat sat on the mat. " if i % 7 < 3 else "a dog ran. " for i in range(4000)))
        print(f"{self.name}: seed {self.seed}, {self.count} {unit}{', under a terminal' if self.options.pty else ''}",
              flush=True)

    def train(self, out, settings):
        """Returns the arguments of a small run that writes to `out`."""
        words = ["train", "tiny-llama", "--data", str(self.text), "--out", str(out)]
        for key, value in (MODEL | settings).items():
            words += ["--set", f"{key}={value}"]
        return words

    def command(self, words, **more):
        return Command([self.program, *words], has_terminal=self.options.pty, **more)

    def run(self, words, limit_s=LONGEST_S, **more):
        return self.command(words, **more).wait(limit_s)

    def resume(self, out, *more):
        return self.run(["train", "--resume", "--out", str(out), *more])

    def calm_run(self, name, settings):
        """Makes the undisturbed run that others are compared with, keeps all its checkpoints, and returns its folder."""
        out = self.folder / name
        outcome = self.run(self.train(out, settings | {"checkpoint.keep": 1000000}))
        if outcome.code:
            sys.exit(f"{self.name}: the undisturbed run failed: {outcome.output}")
        return out

    def fail(self, what, output=""):
        self.failures.append(what)
        print(f"FAILED: {what}", flush=True)
        if output:
            print("  | " + "\n  | ".join(output.strip().splitlines()[-25:]), flush=True)

    def finish(self, figures):
        """Prints the last line and returns the exit code."""
        end_processes(self.folder)
        if not self.options.keep and not self.failures:
            shutil.rmtree(self.folder, ignore_errors=True)
        else:
            print(f"the folder is kept: {self.folder}")
        result = "held" if not self.failures else f"{len(self.failures)} FAILED"
        print(f"{self.name}: {self.done} {self.unit}: {result}; {figures}; seed {self.seed}, "
              f"{time.monotonic() - self.start_s:.0f} s", flush=True)
        return 1 if self.failures else 0


def fast_folder():
    """Returns where the scripts work: $TMPDIR, or a file system in memory, because flushing a disk takes most of the time."""
    memory = pathlib.Path("/dev/shm")
    if os.environ.get("TMPDIR") or not os.access(memory, os.W_OK) or shutil.disk_usage(memory).free < 2 << 30:
        return None
    return str(memory)


def skip(name, why):
    """Says that a script cannot run here, in the words that ctest looks for."""
    print(f"{name}: skipped, because {why}")
    sys.exit(0)


def checkpoints(run):
    """Returns the steps of a run's committed checkpoints, in ascending order. Folders that were set aside
    (step-N.kept-1) do not count."""
    names = os.listdir(run / "checkpoints") if (run / "checkpoints").is_dir() else []
    return sorted(int(name[5:]) for name in names if re.fullmatch(r"step-\d{9,}", name))


def checkpoint(run, step):
    return run / "checkpoints" / f"step-{step:09}"


def contents(folder):
    """Returns a hash of every file of a checkpoint, by name. Lines about keys in which a disturbed run may differ from the
    undisturbed one (how many checkpoints are kept, where it stops) and hashes of these lines do not count."""
    found = {}
    for path in sorted(folder.iterdir()):
        text = path.read_bytes()
        if path.name in ("config.toml", "MANIFEST.json"):
            text = b"\n".join(line for line in text.splitlines() if not FREE_LINES.match(line))
        found[path.name] = hashlib.sha256(text).hexdigest()
    return found


def losses(run):
    """Returns (loss, gradient norm) of every step, the last that metrics.jsonl has of it."""
    found = {}
    path = run / "metrics.jsonl"
    for line in path.read_text(errors="replace").splitlines() if path.exists() else []:
        try:
            row = json.loads(line)
        except ValueError:  # the process died while it wrote
            continue
        if "loss" in row:
            found[row["step"]] = (row["loss"], row.get("grad_norm"))
    return found


def differences(run, calm, is_complete=True):
    """Returns what distinguishes a run from the undisturbed one; empty if nothing does."""
    faults = []
    expected = checkpoints(calm)
    for step in checkpoints(run):
        if step not in expected:  # a checkpoint of a run that was told to end
            continue
        ours, theirs = contents(checkpoint(run, step)), contents(checkpoint(calm, step))
        faults += [f"step {step}: {name} differs" for name in sorted(ours.keys() | theirs.keys())
                   if ours.get(name) != theirs.get(name)]
    if is_complete:
        if not checkpoints(run) or checkpoints(run)[-1] != expected[-1]:
            faults.append(f"the last checkpoint is {checkpoints(run)[-1:]}, not {expected[-1]}")
        ours, theirs = losses(run), losses(calm)
        wrong = [step for step in theirs if ours.get(step) != theirs[step]]
        if wrong:
            faults.append(f"the losses of {len(wrong)} steps differ, first {min(wrong)}: {ours.get(min(wrong))}, "
                          f"undisturbed {theirs[min(wrong)]}")
    return faults


def processes(folder, name="ingot"):
    """Returns the processes called `name` whose arguments have a path in `folder`, the lowest number first."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
            state = pathlib.Path(f"/proc/{pid}/stat").read_text()
        except OSError:  # it has ended
            continue
        comm, status = state[state.index("(") + 1:state.rindex(")")], state[state.rindex(")") + 2]
        if str(folder).encode() in words and status != "Z" and comm.startswith(name):
            found.append(int(pid))
    return sorted(found)


def end_processes(folder):
    """Kills what is left of the runs in a folder and returns how many processes that were."""
    left = processes(folder, "")
    left = [pid for pid in left if pid != os.getpid()]
    for pid in left:
        send(pid, signal.SIGKILL)
    return len(left)


def send(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def last_step(run):
    """Returns the last step in metrics.jsonl; 0 if there is none. Reads only the end of the file."""
    try:
        with open(run / "metrics.jsonl", "rb") as file:
            file.seek(max(0, os.path.getsize(run / "metrics.jsonl") - 8192))
            steps = re.findall(rb'"step":(\d+)', file.read())
    except OSError:
        return 0
    return int(steps[-1]) if steps else 0


def wait_until(condition, limit_s=60, pause_s=0.01):
    """Returns whether the condition came true within the limit."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(pause_s)
    return False
