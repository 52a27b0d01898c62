"""Records which lines of the library each test runs, and answers which tests run a line."""
import bisect
import collections
import concurrent.futures
import difflib
import hashlib
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import time

from .build import run, with_program
from .operators import FOLDERS

FLAGS = ("-O1", "-g1", "-fsanitize-coverage=trace-pc")
RECORDER = pathlib.Path(__file__).resolve().parents[2] / "tests/mutants/recorder.cpp"
CALL_BYTES = 5  # of the call of the listener, which records the address after it
HEADER_BYTES = 4096  # of a record (tests/mutants/recorder.cpp)


def sources(root):
    return {str(path.relative_to(root)): path for folder in FOLDERS for path in sorted((root / "ingot" / folder).rglob("*"))
            if path.suffix in (".h", ".cpp")}


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def calls(program, target):
    """Returns the addresses of the program's calls of the function at `target`, which are 5 bytes long."""
    found = re.search(r" \.text +PROGBITS +(\w+) (\w+) (\w+)", output_of("readelf", "-SW", program))
    address, offset, size = (int(x, 16) for x in found.groups())
    code = pathlib.Path(program).read_bytes()[offset:offset + size]
    result, at = [], code.find(b"\xe8")
    while 0 <= at <= size - 5:
        if address + at + 5 + struct.unpack_from("<i", code, at + 1)[0] == target:
            result.append(address + at)
        at = code.find(b"\xe8", at + 1)
    return result


class LineMap:
    """The lines of a program's blocks. A block begins with a call of the listener."""

    def __init__(self, program, root):
        symbols = {}
        functions = []
        for line in output_of("nm", program).splitlines():
            words = line.split()
            if len(words) == 3:
                symbols[words[2]] = int(words[0], 16)
                functions += [int(words[0], 16)] if words[1] in "tTwWiu" else []
        functions.sort()
        self.base = symbols["__executable_start"]
        starts = calls(program, symbols["__sanitizer_cov_trace_pc"])
        self.lines = collections.defaultdict(set)  # block -> {(file, line)}
        prefixes = tuple(f"{root}/ingot/{folder}/" for folder in FOLDERS)
        file, before = "", None  # the row before this one: (file, line, address)
        for row in output_of("readelf", "-wL", "-W", program).splitlines():
            words = row.split()
            if len(words) == 1 and row.endswith(":") or row.startswith("CU: "):
                path = os.path.normpath(words[-1][:-1])
                file = path[len(f"{root}/"):] if path.startswith(prefixes) else ""
            elif len(words) >= 3 and words[2].startswith("0x"):
                address = int(words[2], 16)
                if before is not None and before[0]:
                    # The row before covers the code up to this address: the block that it lies in, unless that is
                    # another function's, and those that begin in it.
                    first = bisect.bisect_right(starts, before[2]) - 1
                    function = functions[bisect.bisect_right(functions, before[2]) - 1]
                    first += first < 0 or starts[first] < function
                    for block in starts[first:bisect.bisect_left(starts, address)]:
                        self.lines[block].add(before[:2])
                before = (file, int(words[1]), address) if words[1].isdigit() else None


def ranges(lines):
    """1,2,3,7 -> '1-3,7'"""
    result, numbers = [], sorted(lines)
    for number in numbers:
        if result and result[-1][1] == number - 1:
            result[-1][1] = number
        else:
            result.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in result)


def numbers_of(text):
    """'1-3,7' -> {1, 2, 3, 7}"""
    bounds = (part.partition("-") for part in text.split(",") if part)
    return {n for a, _, b in bounds for n in range(int(a), int(b or a) + 1)}


def read_rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Recorder:
    def __init__(self, build, folder):
        self.build, self.folder, self.maps = build, folder, {}
        self.file = folder / "coverage.jsonl"
        self.tree = ""

    def snapshot(self):
        """Copies the sources, so that a later run can map their lines to those of its own; returns the copy's name."""
        files = sources(self.build.root)
        digest = hashlib.sha256(b"".join(name.encode() + path.read_bytes() for name, path in files.items())).hexdigest()[:12]
        for name, path in files.items():
            copy = self.folder / "sources" / digest / name
            if not copy.exists():
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)
        return digest

    def compile(self, folders, jobs):
        """Compiles the instrumented objects of folders that are older than the build's."""
        listener = self.folder / "recorder.o"
        if not listener.exists() or listener.stat().st_mtime < RECORDER.stat().st_mtime:
            subprocess.run(["c++", "-std=c++20", "-O2", "-fPIC", "-c", RECORDER, "-o", listener], check=True)
        names = [o for o in self.build.commands if re.match(r"CMakeFiles/ingot_(%s)\.dir/" % "|".join(folders), o)]
        objects = {name: self.folder / "objects" / name for name in names}
        old = [n for n, o in objects.items() if not o.exists() or o.stat().st_mtime < (self.build.folder / n).stat().st_mtime]
        print(f"coverage: compiling {len(old)} of {len(names)} objects", flush=True)
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            list(pool.map(lambda name: self.build.compile(name, objects[name], FLAGS), old))
        return objects, listener

    def program(self, program, objects, listener):
        out = self.folder / "programs" / program.name
        mine = {n: o for n, o in objects.items() if n in self.build.objects_of(program)}
        if not out.exists() or out.stat().st_mtime < max(path.stat().st_mtime for path in (program, listener, *mine.values())):
            self.build.link(program, out, mine, [listener])
        if program.name not in self.maps:
            self.maps[program.name] = LineMap(out, self.build.root)
            code = collections.defaultdict(set)
            for file, line in set().union(*self.maps[program.name].lines.values()):
                code[file].add(line)
            self.append({"program": program.name, "tree": self.tree, "code": {file: ranges(lines) for file, lines in sorted(code.items())}})
        return out

    def append(self, row):
        with self.file.open("a") as out:
            out.write(json.dumps(row) + "\n")

    def record(self, folders, pattern, again, limit_s, jobs):
        folders = {*folders, *(f for f in FOLDERS if (self.folder / f"objects/CMakeFiles/ingot_{f}.dir").exists())}
        known = set() if again else {row.get("test") for row in read_rows(self.file)
                                          if row.get("passed") and folders <= set(row["folders"])}
        wanted = [t for t in self.build.tests.values() if re.search(pattern, f"{t.program.name} {t.name}") and t.name not in known]
        print(f"coverage: {len(wanted)} tests to record", flush=True)
        if not wanted:
            return
        self.tree = self.snapshot()
        objects, listener = self.compile(folders, jobs)
        main = self.build.folder / "ingot"
        instrumented = self.program(main, objects, listener) if main.exists() else None
        wanted.sort(key=lambda t: (t.ranks, t.program.name))
        begin = time.monotonic()
        for index, test in enumerate(wanted):
            program = self.program(test.program, objects, listener)
            records = self.folder / f"records-{os.getpid()}"
            shutil.rmtree(records, ignore_errors=True)
            records.mkdir(parents=True)
            start = time.monotonic()
            code, text = run(with_program(test.command_with(program), main, instrumented), test.cwd,
                             {**test.environment, "INGOT_COVERAGE": str(records)}, limit_s)
            row = {"test": test.name, "program": test.program.name, "seconds": round(time.monotonic() - start, 3), "tree": self.tree,
                   "folders": sorted(folders), "passed": code == 0, "starts": sorted(self.lines_of(records, lines := collections.defaultdict(set)))}
            row["lines"] = {file: ranges(numbers) for file, numbers in sorted(lines.items())}
            if code != 0:
                print(f"coverage: {test.name} {'is too slow' if code is None else 'fails'} with the listener: it is left out", flush=True)
                row["why"] = text[-300:]
            self.append(row)
            shutil.rmtree(records)
            if index % 50 == 49:
                print(f"coverage: {index + 1} of {len(wanted)} tests, {time.monotonic() - begin:.0f} s", flush=True)

    def lines_of(self, records, lines):
        """Adds the lines in the records to `lines`; returns the names of the programs that made them."""
        programs = set()
        for path in records.iterdir():
            data = path.read_bytes()
            count = min(struct.unpack_from("<I", data)[0], (len(data) - HEADER_BYTES) // 4)
            name = os.path.basename(data[8:HEADER_BYTES].split(b"\0")[0].decode())
            if count == 0 or name not in self.maps:
                continue
            programs.add(name)
            line_map = self.maps[name]
            for offset in struct.unpack_from(f"<{count}I", data, HEADER_BYTES):
                for file, line in line_map.lines.get(offset - CALL_BYTES + line_map.base, ()):
                    lines[file].add(line)
        return programs


class Coverage:
    """The recorded tests and the lines that they run."""

    def __init__(self, folder, root, tests):
        self.folder, self.root = folder, root
        rows = read_rows(folder / "coverage.jsonl")
        self.rows = {row["test"]: row for row in rows if "test" in row}
        self.rows = {name: row for name, row in self.rows.items() if row["passed"] and name in tests}
        self.programs = {row["program"]: row for row in rows if "code" in row}
        self.sizes = {name: sum(len(text) for text in row["lines"].values()) for name, row in self.rows.items()}
        self.of_file = {}  # what lines() has returned

    def shift(self, file, tree):
        """Maps the lines of the recorded source to those of today."""
        old = (self.folder / "sources" / tree / file).read_text().split("\n")
        new = (self.root / file).read_text().split("\n")
        if old == new:
            return None
        blocks_ = difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
        return {a + i + 1: b + i + 1 for a, b, size in blocks_ for i in range(size)}

    def numbers(self, text, file, tree, shifts):
        if tree not in shifts:
            shifts[tree] = self.shift(file, tree)
        found = numbers_of(text)
        return found if shifts[tree] is None else {shifts[tree][n] for n in found if n in shifts[tree]}

    def lines(self, file):
        """Returns the lines of a file that have code, sorted, and those that each test runs."""
        if file not in self.of_file:
            shifts = {}
            code = set().union(*(self.numbers(row["code"][file], file, row["tree"], shifts) for row in self.programs.values()
                                 if file in row["code"]))
            tests = {name: self.numbers(row["lines"][file], file, row["tree"], shifts) for name, row in self.rows.items()
                     if file in row["lines"]}
            self.of_file[file] = sorted(code), tests
        return self.of_file[file]

    def tests_of(self, file, line, others):
        """Returns the tests that run a line (from 1).

        A line of a .cpp without code of its own belongs to the code line before it in the same function. Constants and defaults
        of members belong to none: their tests are those that run any line of the file or of `others`, which include it."""
        code, tests = self.lines(file)
        at = bisect.bisect_right(code, line) - 1
        if at >= 0 and code[at] != line:
            between = (self.root / file).read_text().split("\n")[code[at]:line]
            if file.endswith(".h") or any(re.match(r"\S|\s*}", text) for text in between):
                at = -1
        if at >= 0:
            return [name for name, numbers in tests.items() if code[at] in numbers]
        return [name for name, row in self.rows.items() if any(other in row["lines"] for other in (file, *others))]
