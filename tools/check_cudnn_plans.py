#!/usr/bin/env python3
"""Makes attention's plans with several versions of cuDNN: tools/check_cudnn_plans.py PROGRAM LIBRARY_FOLDERS [VERSION...]

PROGRAM is ingot_cudnn_tests, and LIBRARY_FOLDERS, separated by colons, have its stub driver and the libraries of CUDA. Each
version of nvidia-cudnn-cu13 is installed once, in a folder of the cache. A version that pip cannot install is not checked,
which the last line says; if that holds for all of them, the exit code is 77.
"""
import os
import pathlib
import shutil
import subprocess
import sys

VERSIONS = ("9.19.0.56", "9.28.1.4")  # PyTorch 2.11's, and the newest that was known


def installed(version):
    """The folder with the library, or None."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    folder = cache / f"ingot-cudnn-{version}"
    library = folder / "nvidia/cudnn/lib"
    if not (library / "libcudnn.so.9").exists():
        part = folder.with_suffix(f".part-{os.getpid()}")
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(part), f"nvidia-cudnn-cu13=={version}"]
        if subprocess.run(command).returncode != 0:
            shutil.rmtree(part, ignore_errors=True)
            return None
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)
    return library


def main():
    program, folders, *versions = sys.argv[1:]
    left_out, failed = [], []
    versions = versions or VERSIONS
    for version in versions:
        library = installed(version)
        if not library:
            left_out.append(version)
            continue
        major, minor, patch = map(int, version.split(".")[:3])
        environment = os.environ | {"LD_LIBRARY_PATH": f"{library}:{folders}",
                                    "INGOT_CUDNN_VERSION": str(major * 10000 + minor * 100 + patch)}
        print(f"cuDNN {version}", flush=True)
        if subprocess.run([program, "--gtest_brief=1", "--gtest_filter=-Slow*"], env=environment).returncode != 0:
            failed.append(version)
    if left_out:
        print(f"cudnn plans: NOT CHECKED: pip cannot install nvidia-cudnn-cu13 {', '.join(left_out)}")
    if failed:
        sys.exit(f"cudnn plans: failed with {', '.join(failed)}")
    sys.exit(77 if len(left_out) == len(versions) else 0)


main()
