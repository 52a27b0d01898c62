#!/usr/bin/env python3
"""Checks the dependency rule of docs/architecture.md: which folder of ingot/ may include which, heavy headers
in .cpp files only, that every quoted include names an existing file from the root, that no folder has more than 45
files, and that CMake knows which files call kernels. Prints every violation and exits with 1, or prints how
many files it checked."""
import collections
import pathlib
import re
import sys

MAY_INCLUDE = {
    "core": [],
    "comm": ["core"],
    "ops": ["core"],
    "nn": ["ops", "core"],
    "optim": ["ops", "core"],
    "formats": ["core"],
    "data": ["formats", "core"],
    "infer": ["nn", "data", "ops", "core"],
    "http": ["core"],
    "console": ["core"],
    "config": ["nn", "optim", "data", "core"],
    "train": ["config", "nn", "optim", "comm", "data", "ops", "core"],
    "parallel": ["train", "config", "nn", "optim", "comm", "ops", "core"],
    "memory": ["parallel", "train", "infer", "config", "comm", "data", "formats", "console", "core"],
    "plan": ["memory", "parallel", "train", "config", "nn", "optim", "comm", "data", "formats", "console", "ops", "core"],
    "checkpoint": ["memory", "train", "config", "nn", "comm", "data", "formats", "ops", "core"],
    "tasks": ["checkpoint", "infer", "nn", "data", "formats", "core"],
    "api": ["http", "checkpoint", "infer", "nn", "data", "ops", "core"],
    "run": ["tasks", "checkpoint", "memory", "parallel", "train", "infer", "config", "console", "nn", "optim", "comm", "data", "formats",
            "ops", "core"],
    "launch": ["run", "checkpoint", "parallel", "config", "console", "core"],
    "sweep": ["run", "checkpoint", "memory", "parallel", "config", "console", "formats", "core"],
    "watch": ["sweep", "launch", "run", "config", "console", "formats", "http", "core"],
    "profile": ["run", "plan", "checkpoint", "memory", "parallel", "train", "config", "console", "nn", "optim", "comm", "data",
                "formats", "ops", "core"],
}
MOST_FILES = 45
HEAVY = ("nlohmann/", "toml++/", "CLI/", "oneapi/", "pcre2", "utf8proc", "mpi.h", "cuda_runtime.h", "cublasLt.h")
# Headers that wrap a library and that only .cpp files of their own folder include.
WRAPPERS = {"ingot/comm/mpi_communicator.h": "mpi.h", "ingot/comm/mpi_watchdog.h": "mpi.h",
            "ingot/core/cuda/cuda_launch.h": "cuda_runtime.h"}
INNER = re.compile(r"ingot/ops/[^/]+/")
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', re.MULTILINE)


def folder_of(path):
    return path.split("/")[1]


def breaches(root, file):
    name = file.relative_to(root).as_posix()
    text = file.read_text(encoding="utf-8")
    for match in INCLUDE.finditer(text):
        line = text.count("\n", 0, match.start(1)) + 1
        quote, target = match.groups()
        if quote == '"' and not (root / target).is_file():
            yield f'{name}:{line}: "{target}" is no file of this tree (includes are written from the root)'
            continue
        if name.endswith(".h") and target.startswith(HEAVY) and name.startswith("ingot/") and WRAPPERS.get(name) != target:
            yield f"{name}:{line}: {target} is a heavy header: include it in a .cpp only"
        if name.startswith("apps/") and INNER.match(target):
            yield f"{name}:{line}: {target} is an inner header of ops: include a header of ingot/ops itself"
        if not name.startswith("ingot/") or quote != '"':
            continue
        if not target.startswith("ingot/"):
            yield f"{name}:{line}: ingot/ must not include {target}"
        elif INNER.match(target) and folder_of(name) != "ops":
            yield f"{name}:{line}: {target} is an inner header of ops: include a header of ingot/ops itself"
        elif folder_of(target) != folder_of(name) and folder_of(target) not in MAY_INCLUDE[folder_of(name)]:
            yield f"{name}:{line}: {folder_of(name)} must not include {folder_of(target)} ({target})"


def unlisted_kernel_callers(root, files):
    """Yields the files that call kernels but are not in the lists of cmake/IngotLibrary.cmake, and vice versa."""
    listed = set(re.findall(r"^    ((?:ingot|apps)/\S+\.cpp)", (root / "cmake/IngotLibrary.cmake").read_text(encoding="utf-8"),
                            re.MULTILINE))
    calling = {f.relative_to(root).as_posix() for f in files
               if f.suffix == ".cpp" and f.relative_to(root).parts[0] in ("ingot", "apps")
               and "if constexpr (kHasCuda)" in f.read_text(encoding="utf-8")}
    for name in sorted(listed ^ calling):
        yield f"{name}: " + ("calls kernels but is not in" if name in calling else "calls no kernels but is in") + \
            " the lists of cmake/IngotLibrary.cmake"


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    files = [f for part in ("ingot", "apps", "tests", "bench") for f in sorted((root / part).rglob("*"))
             if f.suffix in (".h", ".cpp", ".cu")]
    unknown = {folder_of(f.relative_to(root).as_posix()) for f in files
               if f.relative_to(root).parts[0] == "ingot"} - MAY_INCLUDE.keys()
    found = [f"ingot/{folder} has no line in the table of tools/check_dependencies.py" for folder in unknown]
    sizes = collections.Counter(f.parent.relative_to(root).as_posix() for f in files)
    found += [f"{folder} has {count} files, at most {MOST_FILES}: make a sub-folder"
              for folder, count in sizes.items() if count > MOST_FILES]
    found += unlisted_kernel_callers(root, files)
    for file in files:
        if not unknown:
            found += breaches(root, file)
    print("\n".join(found) if found else f"dependencies: {len(files)} files follow the rule")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
