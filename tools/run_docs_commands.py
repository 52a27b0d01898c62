#!/usr/bin/env python3
"""Runs the commands of README.md, docs/*.md and examples/ as they are written, on small texts and a small model.

Every fenced block is one of these, or the script fails:
  - shell commands (no language, sh or bash): bash runs them. The blocks of one file run in order in one folder;
  - toml: `ingot train FILE --print-config` reads it;
  - a block marked by an HTML comment on the line before the fence:
      <!-- docs: not run: REASON -->   the script prints the reason
      <!-- docs: synopsis -->          its commands, subcommands and options are compared with the program's help
In examples/, comment lines that begin with "#   ingot", "#   mpirun" or "#   sbatch" are commands too.

Wrapper programs come first in PATH: `ingot` adds settings to `train` that make model and run small, `mpirun` allows
root and more ranks than cores, and `srun` and `sbatch` run the job on this machine on two ranks.

Usage: tools/run_docs_commands.py [--program build/release/ingot] [FILE ...]
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIMIT_S = 150  # time limit per block
SETTINGS = {
    "train.steps": 2, "train.batch_size": 4, "train.grad_accum": 8, "model.layers": 8, "model.heads": 4,
    "model.kv_heads": 0, "model.width": 32, "model.ffn": 64, "model.context": 64, "model.vocab": 0,
    "data.tokenizer_vocab": 300, "eval.max_tokens": 512, "sample.tokens": 4, "sample.count": 1,
}
MARK = re.compile(r"^\s*<!-- docs: (synopsis|not run: \S.*?) -->\s*$")
COMMAND = re.compile(r"^#   ((?:ingot|mpirun|sbatch) .*)$")


class Block:
    def __init__(self, path, line, language, mark):
        self.path, self.line, self.language, self.mark, self.text = path, line, language, mark, ""

    def __str__(self):
        return f"{self.path.relative_to(ROOT)}:{self.line}"


def fenced_blocks(path):
    """Returns the blocks of a Markdown file, each with the mark on the line before it."""
    blocks, open_block, before = [], None, ""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        fence = re.match(r"^\s*```(\S*)", line)
        if open_block is not None:
            if fence:
                blocks.append(open_block)
                open_block = None
            else:
                open_block.text += line + "\n"
        elif fence:
            mark = MARK.match(before)
            open_block = Block(path, number, fence[1], mark[1] if mark else "")
        if line.strip():
            before = line
    if open_block is not None:
        sys.exit(f"{open_block}: this block has no end")
    return blocks


def commented_commands(path):
    """Returns the commands in the comments of an example as one block."""
    block = None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        command = COMMAND.match(line)
        if command:
            block = block or Block(path, number, "sh", "")
            block.text += command[1] + "\n"
    if block is None:
        sys.exit(f"{path}: an example says in a comment how it is run (#   ingot ...)")
    return [block]


TWO_RANKS = "--set parallel.dp=2 --set parallel.fsdp=1 --set parallel.tp=1 --set parallel.pp=1"


def write_program(folder, name, text):
    path = folder / name
    path.write_text("#!/usr/bin/env bash\n" + text)
    path.chmod(0o755)


def make_programs(folder, ingot, mpirun):
    """Writes the wrapper programs that come first in PATH."""
    folder.mkdir()
    settings = " ".join(f"--set {key}={value}" for key, value in SETTINGS.items())
    write_program(folder, "ingot", f"""
case " $* " in *' --print-config '* | *' --help '* | *' --resume '*) exec {ingot} "$@" ;; esac
case "$1" in
  train) exec {ingot} "$@" {settings} $DOCS_RANKS ;;
  launch) exec {ingot} "$@" {settings} {TWO_RANKS} ;;
  generate) exec {ingot} "$@" --tokens 8 ;;
  *) exec {ingot} "$@" ;;
esac
""")
    write_program(folder, "mpirun", f'exec {mpirun} "$@"\n')
    # srun replaces the layout of the job by two replicas.
    write_program(folder, "srun", 'while [[ "$1" == -* ]]; do [[ "$1" == -n ]] && shift; shift; done\n'
                  f"export DOCS_RANKS='{TWO_RANKS}'\n"
                  f'exec {mpirun} -n 2 "$@"\n')
    write_program(folder, "sbatch", 'exec bash "$@"\n')
    write_program(folder, "scontrol", 'echo "scontrol $*"\n')


def make_scratch(folder, programs):
    """Creates a folder with the files that the commands name."""
    folder.mkdir()
    prose = "".join(p.read_text() for p in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))])
    (folder / "data").mkdir()
    for name in ("book.txt", "tinyshakespeare.txt", "corpus.txt", "data/corpus.txt"):
        (folder / name).write_text(prose)
    (folder / "array.json").write_text('[{"text": "one"}, {"text": "two"}]\n')
    (folder / "table.csv").write_text("text,year\none,1\ntwo,2\n")
    (folder / "examples").symlink_to(ROOT / "examples")
    (folder / "build" / "release").mkdir(parents=True)
    (folder / "build" / "release" / "ingot").symlink_to(programs / "ingot")


def run(command, scratch, environment):
    done = subprocess.run(command, cwd=scratch, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=LIMIT_S, check=False)
    return done.returncode, done.stdout.decode(errors="replace")


def subcommands(help_text):
    section = help_text.split("Subcommands:\n", 1)
    return set(re.findall(r"^  (\S+)", section[1], re.M)) if len(section) == 2 else set()


def synopsis_faults(block, ingot, environment):
    """Returns what the program's help does not confirm."""
    def help_of(*words):
        return run([str(ingot), "help", *words], ROOT, environment)[1]

    faults, listed = [], set()
    for line in block.text.splitlines():
        command, rest = re.match(r"ingot (\S+) ?(.*)", line).groups()
        listed.add(command)
        text = help_of(command)
        own = subcommands(text)
        if own:
            given = set(rest.split()[0].split("|"))
            if given != own:
                faults.append(f"ingot {command}: the help has {sorted(own)}, the synopsis {sorted(given)}")
        for option in re.findall(r"--[a-z][a-z-]*", rest):
            if not re.search(re.escape(option) + r"(?![a-z-])", text + "".join(help_of(command, sub) for sub in own)):
                faults.append(f"ingot {command}: there is no {option}")
    everything = subcommands(help_of())
    if listed != everything:
        faults.append(f"ingot: the help has {sorted(everything)}, the synopsis {sorted(listed)}")
    return faults


def check(block, ingot, scratch, environment):
    """Returns (what was done with the block, what is wrong with it or '')."""
    if block.mark.startswith("not run"):
        return block.mark, ""
    if block.mark == "synopsis":
        return "compared with the help", "\n".join(synopsis_faults(block, ingot, environment))
    if block.language == "toml":
        (scratch / "block.toml").write_text(block.text)
        code, said = run([str(ingot), "train", "block.toml", "--print-config"], scratch, environment)
        return "read as a configuration", said if code else ""
    if block.language not in ("", "sh", "bash"):
        return "", f"mark a block of {block.language}: <!-- docs: not run: REASON -->"
    try:
        code, said = run(["bash", "-euo", "pipefail", "-c", block.text], scratch, environment)
    except subprocess.TimeoutExpired as error:
        return "", f"took longer than {LIMIT_S} s\n{(error.stdout or b'').decode(errors='replace')}"
    return "run", f"exit code {code}\n{said}" if code else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--program", default=str(ROOT / "build/release/ingot"))
    parser.add_argument("files", nargs="*", type=pathlib.Path, help="only these")
    arguments = parser.parse_args()
    ingot, mpirun = pathlib.Path(arguments.program).resolve(), shutil.which("mpirun")
    if not ingot.exists():
        sys.exit(f"{ingot}: there is no program; build it first (cmake --build --preset release)")
    files = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "examples").glob("*.toml")),
             *sorted((ROOT / "examples").glob("*/*.sbatch"))]
    files = [path.resolve() for path in arguments.files] or files
    failed, start = 0, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ingot-docs-") as name:
        folder = pathlib.Path(name)
        programs = folder / "programs"
        make_programs(programs, ingot, mpirun)
        for index, path in enumerate(files):
            scratch = folder / str(index)
            make_scratch(scratch, programs)
            environment = os.environ | {
                "PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(scratch), "OMP_WAIT_POLICY": "passive",
                "OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                "OMPI_MCA_rmaps_base_oversubscribe": "1",
                "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
                "SLURM_CPUS_PER_TASK": "1", "SLURM_JOB_ID": "1", "DOCS_RANKS": ""}
            for block in fenced_blocks(path) if path.suffix == ".md" else commented_commands(path):
                begin = time.monotonic()
                if not block.mark and not mpirun and re.search(r"\b(mpirun|srun|sbatch)\b", block.text):
                    done, fault = "NOT RUN: there is no mpirun here", ""
                else:
                    done, fault = check(block, ingot, scratch, environment)
                print(f"{block}: {f'FAILED: {fault}' if fault else done} ({time.monotonic() - begin:.1f} s)", flush=True)
                failed += bool(fault)
    print(f"docs: {failed} blocks failed, {time.monotonic() - start:.0f} s")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
