"""Runs the programs of a pack within time limits and writes their figures the moment they are measured
(bench/gpu/rows.py)."""
import contextlib
import datetime
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import summary

HERE = pathlib.Path(__file__).resolve().parent
TORCH = [sys.executable, HERE / "torch_baseline.py"]
LOGGED_BYTES = 1 << 18  # of a program's stdout that log.txt keeps


class Failed(Exception):
    """A row's program failed, or its figures are wrong."""


class Skipped(Exception):
    """A row cannot be measured on this machine."""


class TooLong(Exception):
    """A row has used up its time."""


def last_json(text):
    lines = [line for line in text.splitlines() if line.startswith("{")]
    if not lines:
        raise Failed(f"no JSON in {text[-200:]!r}")
    return json.loads(lines[-1])


@contextlib.contextmanager
def running(command, **options):
    """Starts a process. At the end of the `with` it is dead, and so are its children."""
    process = subprocess.Popen(command, process_group=0, **options)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe:
                with contextlib.suppress(OSError):
                    pipe.close()


def said_by(command):
    """Returns the stdout of a short command; empty if there is no such program or it takes more than 10 s."""
    try:
        with running(command, stdout=subprocess.PIPE, text=True) as process:
            return process.communicate(timeout=10)[0].strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


class Machine:
    """The programs, the output folder, the figures so far and the time that is left. Rows of several threads use it."""

    def __init__(self, command, out, programs, limit_s, is_dry=False, torch_cache=None):
        self.command, self.out, self.programs, self.is_dry = command, out, programs.resolve(), is_dry
        self.out.mkdir(parents=True, exist_ok=True)
        self.results, self.log = self.out / "results.jsonl", self.out / "log.txt"
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="ingot-gpu-"))
        # PyTorch keeps paths in its cache, so the folder has the same name on every machine.
        self.torch_cache = self.work / "torch" if is_dry else pathlib.Path(tempfile.gettempdir()) / "ingot-torch-cache"
        if torch_cache:
            self.torch_cache.mkdir(parents=True, exist_ok=True)
            shutil.unpack_archive(torch_cache, self.torch_cache)
        self.end = time.monotonic() + limit_s
        self.lock = threading.RLock()
        self.lines = []
        self.steps_for = {}  # steps that fill the wanted time, by configuration
        self.suspects = []  # device tests that failed or did not end
        card = said_by(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]).splitlines()[:1]
        self.identity = {"program": said_by([self.program("ingot"), "--version"]) or "unknown",
                         "device": card[0] if card else "simulated" if is_dry else "unknown",
                         "date": datetime.date.today().isoformat()}

    def program(self, name):
        return str(self.programs / name)

    def cut(self):
        """Ends all rows."""
        self.end = 0

    def write(self, **figures):
        """Adds a line to results.jsonl and makes summary.md of all lines."""
        with self.lock:
            self.lines.append({"command": self.command, **figures, **self.identity})
            with open(self.results, "a", encoding="utf-8") as file:
                file.write(json.dumps(self.lines[-1]) + "\n")
            try:
                page = summary.page(self.lines)
            except Exception as error:  # pylint: disable=broad-except; a page never ends a measurement
                page = f"The page could not be made of results.jsonl: {error!r}\n"
            (self.out / "summary.md").write_text(page, encoding="utf-8")


class Row:
    """One measurement: its name, its time limit, and the processes that it runs."""

    def __init__(self, machine, name, limit_s):
        self.m, self.name = machine, name
        self.row_end = time.monotonic() + limit_s

    def left_s(self):
        return min(self.row_end, self.m.end) - time.monotonic()

    def write(self, **figures):
        self.m.write(row=self.name, **figures)

    def process(self, command, environment=None, **pipes):
        """Returns the context of a process, as running() does."""
        words = [str(word) for word in command]
        with open(self.m.log, "a", encoding="utf-8") as log:
            log.write(f"\n=== {self.name}: {' '.join(words)}\n")
        # The figures of `works` must not choose kernels for `numbers`: other programs use the device beside them.
        choices = self.m.work if self.m.command == "works" else self.m.out
        variables = {**os.environ, "PYTHONUNBUFFERED": "1", "XDG_CACHE_HOME": str(choices / "cache"), **(environment or {})}
        if str(TORCH[1]) in words:  # PyTorch finds its own libraries
            variables["LD_LIBRARY_PATH"] = os.environ.get("INGOT_GIVEN_LIBRARY_PATH", "")
            variables["TORCHINDUCTOR_CACHE_DIR"] = str(self.m.torch_cache)
        return running(words, env=variables, **pipes)

    def run(self, command, watched=None, environment=None):
        """Runs a command to its end and returns its stdout. `watched`: a file of JSON lines that become figures as they
        appear. Raises TooLong, Skipped (exit code 77) and Failed."""
        begin, seen = time.monotonic(), 0
        with tempfile.TemporaryFile(dir=self.m.work) as out, open(self.m.log, "ab") as log:
            try:
                with self.process(command, environment, stdin=subprocess.DEVNULL, stdout=out, stderr=log) as process:
                    while process.poll() is None and self.left_s() > 0:
                        seen += self.take_figures(watched, seen)
                        time.sleep(0.05)
                    status = process.poll()
                self.take_figures(watched, seen)
            finally:
                out.seek(0)
                text = out.read().decode(errors="replace")
                log.write(text[-LOGGED_BYTES:].encode())
        if status is None:
            raise TooLong(f"ended after {time.monotonic() - begin:.0f} s")
        if status == 77:
            raise Skipped((text.strip().splitlines() or ["exit code 77"])[-1])
        if status:
            raise Failed(f"exit code {status}; log.txt has the output; last line: {(text.strip().splitlines() or [''])[-1][:300]}")
        return text

    def take_figures(self, watched, seen):
        if not watched or not watched.exists():
            return 0
        whole = watched.read_text(encoding="utf-8").split("\n")[:-1]
        for line in whole[seen:]:
            self.write(**json.loads(line))
        return len(whole) - seen


class Rival:
    """PyTorch with a compiled model, in a process of its own that trains when it is told to."""

    def __init__(self, row, process):
        self.row, self.process, self.text = row, process, b""
        self.first = self.answer()

    def answer(self):
        """Returns the next line of JSON."""
        while b"\n" not in self.text:
            if self.row.left_s() <= 0:
                raise TooLong("torch did not answer in time")
            if select.select([self.process.stdout], [], [], 0.1)[0]:
                read = os.read(self.process.stdout.fileno(), 1 << 16)
                if not read:
                    status = self.process.wait()
                    raise Skipped("there is no torch that sees the device") if status == 77 else Failed(f"torch: exit code {status}")
                self.text += read
        line, _, self.text = self.text.partition(b"\n")
        return json.loads(line) if line.startswith(b"{") else self.answer()

    def train(self, seconds):
        self.process.stdin.write(f"run {seconds}\n".encode())
        self.process.stdin.flush()
        return self.answer()


@contextlib.contextmanager
def rival(row, model):
    command = [*TORCH, "serve", model, *(["--dry"] if row.m.is_dry else [])]
    with open(row.m.log, "ab") as log, row.process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log) as process:
        yield Rival(row, process)


def run_row(m, name, limit_s, measure):
    """Returns the row's status: passed, skipped, too long or failed."""
    begin, words, row = time.monotonic(), "", Row(m, name, limit_s)
    try:
        measure(row)
        status = "passed"
    except (Skipped, TooLong, Failed) as error:
        status, words = {Skipped: "skipped", TooLong: "too long", Failed: "failed"}[type(error)], str(error)
    except Exception as error:  # pylint: disable=broad-except; a row never ends the others
        status, words = "failed", f"{type(error).__name__}: {error}"
    seconds = time.monotonic() - begin
    row.write(status=status, seconds=round(seconds, 1), **({"why": words} if words else {}))
    print(f"{m.command} {name:<28} {status:<8} {seconds:6.1f} s  {words}", flush=True)
    return status


def run_lanes(m, lanes):
    """Runs lanes beside each other, and the rows of a lane one after another. Returns {row: status}; a row that has no time
    is left out."""
    statuses = {}

    def run(lane):
        for name, limit_s, measure in lane:
            if m.end - time.monotonic() < 1:
                print(f"{m.command} {name:<28} no time is left", flush=True)
                continue
            statuses[name] = run_row(m, name, limit_s, measure)

    threads = [threading.Thread(target=run, args=(lane,)) for lane in lanes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statuses
