"""Compiles single objects of a finished build with other sources or flags, and links its programs with them.

Nothing in the build or in the sources is changed: a mutated file lies in a folder that comes first in the include path,
and a mutated object comes before the static libraries when a program is linked, so the linker does not take theirs."""
import collections
import functools
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess

OBJECT_LIMIT = 12  # a mutant of a header that more objects of the libraries include is not tried


class Unbuildable(Exception):
    """The mutant does not compile or link."""


def output_of(command, cwd):
    return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True).stdout


def end_session(leader):
    """Kills what is left of a session. Ranks have process groups of their own, in the session of their launcher."""
    for entry in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            if entry.read_text(errors="replace").rpartition(")")[2].split()[3] == str(leader):
                os.kill(int(entry.parent.name), signal.SIGKILL)
        except OSError:
            pass  # it has ended


def run(command, cwd, environment, limit_s):
    """Returns (exit code, output) of a command; the code is None if the limit ended it. No process of its session is left."""
    with subprocess.Popen(command, cwd=cwd, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, start_new_session=True) as process:
        try:
            text, _ = process.communicate(timeout=limit_s)
            code = process.returncode
        except subprocess.TimeoutExpired:
            code = None
        end_session(process.pid)
        if code is None:
            text, _ = process.communicate()
    return code, text.decode(errors="replace")


@functools.cache
def can_mount():
    return subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode == 0


def with_program(command, real, replacement):
    """The command in a mount namespace of its own, in which the file `real` is `replacement`."""
    if not can_mount() or replacement is None:
        return command
    return ["unshare", "-m", "sh", "-c", 'mount --bind "$0" "$1" && shift && exec "$@"', str(replacement), str(real), *command]


class Test:
    """A test of ctest that runs one program of the build."""

    def __init__(self, entry, programs):
        properties = {p["name"]: p["value"] for p in entry.get("properties", [])}
        self.name = entry["name"]
        self.labels = properties.get("LABELS", [])
        self.command = entry.get("command", [])
        self.cwd = properties.get("WORKING_DIRECTORY", ".")
        self.environment = {"OMP_WAIT_POLICY": "passive", **dict(v.split("=", 1) for v in properties.get("ENVIRONMENT", []))}
        self.program = next((programs[word] for word in self.command if word in programs), None)
        self.filter = next((w.split("=", 1)[1] for w in self.command if w.startswith("--gtest_filter=")), "")
        self.ranks = next((int(n) for flag, n in zip(self.command, self.command[1:]) if flag == "-n"), 0)
        # A test that must print a text, or that starts its program by a script, has rules of its own.
        is_plain = self.ranks or self.program and self.command[0] == str(self.program)
        self.is_usable = bool(is_plain and self.program and not self.labels and self.ranks in (0, 2) and "DISABLED" not in properties
                              and "PASS_REGULAR_EXPRESSION" not in properties)

    def command_with(self, program):
        return [str(program) if word == str(self.program) else word for word in self.command]


class Build:
    def __init__(self, root, folder):
        self.root, self.folder = pathlib.Path(root), pathlib.Path(folder)
        self.commands = {}  # object, relative to the build -> command
        for unit in json.loads((self.folder / "compile_commands.json").read_text()):
            words = [w for w in shlex.split(unit["command"]) if pathlib.Path(w).name != "ccache"]
            self.commands[words[words.index("-o") + 1]] = words
        self.users = collections.defaultdict(set)  # source, relative to the root -> objects that include it
        name = None
        for line in output_of(["ninja", "-t", "deps"], self.folder).splitlines():
            if line.startswith("    "):
                path = os.path.normpath(self.folder / line.strip())
                if path.startswith(f"{self.root}/") and name in self.commands:
                    self.users[path[len(f"{self.root}/"):]].add(name)
            else:
                name = line.split(":")[0]

    def old_objects(self):
        """Returns the objects that are older than a source that they include."""
        def time(path):
            return path.stat().st_mtime if path.exists() else 0.0
        times = {name: time(self.folder / name) for names in self.users.values() for name in names}
        return {name for file, names in self.users.items() for name in names if time(self.root / file) > times[name]}

    def library_users(self, file):
        return sorted(o for o in self.users[file] if o.startswith("CMakeFiles/ingot_"))

    def sources_of(self, objects):
        return sorted(file for file, users in self.users.items() if file.endswith(".cpp") and users & set(objects))

    @functools.cached_property
    def tests(self):
        listing = json.loads(output_of(["ctest", "--show-only=json-v1"], self.folder))["tests"]
        words = {word for entry in listing for word in entry.get("command", []) if word.startswith(f"{self.folder}/")}
        programs = {word: pathlib.Path(word) for word in words if os.access(word, os.X_OK) and os.path.isfile(word)}
        tests = (Test(entry, programs) for entry in listing)
        return {test.name: test for test in tests if test.is_usable}

    @functools.cache
    def link_command(self, program):
        """Returns the words of the command that links a program, and the objects in its libraries."""
        name = os.path.relpath(program, self.folder)
        line = output_of(["ninja", "-t", "commands", name], self.folder).splitlines()[-1]
        words = shlex.split(next(part for part in line.split("&&") if f" -o {name} " in part))
        return words, {o for w in words if w.endswith(".a") and not os.path.isabs(w) for o in self.archive(w)}

    @functools.cache
    def archive(self, library):
        folder = pathlib.Path(library)
        prefix = str(folder.parent / "CMakeFiles" / (folder.stem.removeprefix("lib") + ".dir")).removeprefix("./") + "/"
        return [o for o in self.commands if o.startswith(prefix)]

    def objects_of(self, program):
        words, objects = self.link_command(program)
        return objects | {w for w in words if w.endswith(".o")}

    def compile(self, name, out, flags=(), overlay=None, file=None):
        """Compiles the object `name` of the build to `out`. `overlay` is a folder with a changed copy of `file`."""
        out.parent.mkdir(parents=True, exist_ok=True)
        words = list(self.commands[name])
        words[words.index("-o") + 1] = str(out)
        if overlay is not None:
            source = pathlib.Path(words[-1])
            if source == self.root / file:
                words[-1] = str(overlay / file)
            elif "/Unity/" in str(source):
                unity = out.parent / "unity" / source.name  # the object has the file's name
                unity.parent.mkdir(exist_ok=True)
                unity.write_text(source.read_text().replace(f'"{self.root / file}"', f'"{overlay / file}"'))
                words[-1] = str(unity)
            words[1:1] = [f"-I{overlay}", f"-fmacro-prefix-map={overlay}={self.root}"]
        done = subprocess.run([*words, *flags, "-w"], cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unbuildable(done.stderr)

    def link(self, program, out, objects, first=()):
        """Links a program; `objects` maps names of the build's objects to files that replace them."""
        out.parent.mkdir(parents=True, exist_ok=True)
        words, in_libraries = self.link_command(program)
        words = [str(objects.get(w, w)) for w in words]
        words[words.index("-o") + 1] = str(out)
        extra = [str(path) for name, path in sorted(objects.items()) if name in in_libraries]
        linker = ["-fuse-ld=lld"] if shutil.which("ld.lld") else []
        done = subprocess.run([words[0], *linker, *first, *extra, *words[1:]], cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unbuildable(done.stderr)


def failed_test(text):
    """Returns the first test that failed in the output of a GoogleTest program, or the last one that it began."""
    failed = re.search(r"^\[  FAILED  \] (\S+?)(?:,| \(|$)", text, re.M)
    begun = re.findall(r"^\[ RUN      \] (\S+)$", text, re.M)
    return failed[1] if failed else begun[-1] if begun else ""
