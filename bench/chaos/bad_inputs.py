#!/usr/bin/env python3
"""Gives every command bad arguments, configurations, data, tokenizers and checkpoints.

  bench/chaos/bad_inputs.py [--count 800] [--seed N] [--pty] [--short]

A case holds if the command ends within 60 s, with an exit code of a refusal (2 usage, 3 data, 4 memory, 6 disk), one line that
begins with "ingot:" and names the file, option or value, no control characters, and without changing or adding any
file. Files that are damaged at random may also turn out to be valid; then the exit code is 0.
"""
import os
import re
import shutil
import sys

import chaos

LIMIT_S = 60
REFUSALS = (2, 3, 4, 6)
COMMANDS = ["train", "launch", "eval", "generate", "api", "tokenizer", "tokenizer train", "tokenizer encode", "tokenizer decode",
            "tokenizer import", "tokenizer export", "data", "data prepare", "data inspect", "plan", "sweep", "lr-range",
            "compare", "schedule", "status", "doctor", "bench", "bench ops", "bench step"]
VALUES = ["", "abc", "-1", "1e999", "nan", "0x10", "99999999999999999999", "[1,2]", "true;", "\x1b[31m", "\xff"]
TOML = ["[model", "model = 3", "[model]\nlayers = -4", "[model]\nlayers = 'two'", "[nonsense]\nx = 1", "[model]\nlayers = 1e400",
        "[" * 3000, "a." * 3000 + "b = 1", "[model]\nlayers = 2\nlayers = 3", "\x00\x01\x02", "preset = 'absent'",
        "[train]\nsteps = 99999999999999999999", "[model]\nwidth = 2.5", "[optimizer]\nlr = nan"]
HOSTS = ["", ":", "a:", "a:0", "a:-1", "a:x", ",", "a,,b", "a:99999999999999999999"]
EDGES = [b"-1", b"0", b"18446744073709551615", b"1e999", b"null", b"[]", b"{}", b'"\\u0000"', b"9223372036854775807"]


class Case:
    """words: the command; names: texts of which the message must have one; may_be_valid: exit code 0 is right too."""

    def __init__(self, words, names, may_be_valid=False):
        self.words, self.names, self.may_be_valid = words, names, may_be_valid


def damage(random, data):
    """Returns the bytes of a file, damaged in one of several ways."""
    kind = random.randrange(7)
    if kind == 0:
        return data[:random.randrange(len(data) + 1)]
    if kind == 1:
        return random.randbytes(random.choice([0, 1, 8, 1000]))
    at = random.randrange(max(1, len(data)))
    if kind == 2:
        return data[:at] + random.randbytes(random.randrange(1, 40)) + data[at:]
    if kind == 3:
        return data + data[at:at + 200]
    numbers = list(re.finditer(rb"\d+", data[:100000]))
    if kind == 4 and numbers:
        number = random.choice(numbers)
        return data[:number.start()] + random.choice(EDGES) + data[number.end():]
    if kind == 5:
        return data[:at] + b"[" * random.choice([10, 5000]) + data[at:]
    return data[:at] + bytes([data[at] ^ 0xff if data else 0]) + data[at + 1:]


def snapshot(folder):
    """Returns size, time and kind of everything in a folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        info = path.lstat()
        if path.name != ".lock" and not path.is_dir():
            found[str(path)] = (info.st_mode, info.st_size, info.st_mtime_ns)
    return found


class Inputs:
    """The valid files, and places for damaged ones."""

    def __init__(self, test):
        self.test, self.random = test, test.random
        self.run = test.folder / "model"
        self.out = test.folder / "out"
        outcome = test.run(test.train(self.run, {"train.steps": 4, "checkpoint.every": 2}))
        self.data = test.folder / "prepared"
        prepared = test.run(["data", "prepare", "--tokenizer", "bpe", "--vocab-size", "300", "--data", str(test.text),
                             "--out", str(self.data)])
        if outcome.code or prepared.code:
            sys.exit(f"{test.name}: the valid files could not be made: {outcome.output}{prepared.output}")
        self.checkpoint = chaos.checkpoint(self.run, 4)
        self.lines = test.folder / "lines.jsonl"
        self.lines.write_text('{"text": "one"}\n{"text": "two"}\n' * 400)
        keys = test.run(["train", "--help"]).output
        self.keys = sorted(set(re.findall(r"^  ([a-z]+\.[a-z_0-9]+) ", keys, re.M)))
        self.odd = self.odd_places()

    def odd_places(self):
        """Places that are no file: missing, a folder, empty, a FIFO, a loop of links, a name with an escape."""
        folder = self.test.folder / "odd"
        folder.mkdir()
        (folder / "folder").mkdir()
        (folder / "empty").touch()
        (folder / "garbage").write_bytes(self.random.randbytes(5000))
        os.mkfifo(folder / "fifo")
        (folder / "loop").symlink_to("loop")
        return [str(folder / name) for name in ("absent", "folder", "empty", "garbage", "fifo", "loop", "es\x1b[31mc")]

    def reading(self, path):
        """Returns commands that read a place that is not what they need."""
        text, out = str(self.test.text), str(self.out)
        return [["train", path, "--data", text, "--out", out], ["train", "tiny-llama", "--data", path, "--out", out],
                ["train", "--resume", "--out", path], ["launch", "--", "train", path, "--data", text, "--out", out],
                ["launch", "--", "train", "tiny-llama", "--data", path, "--out", out],
                ["eval", path, "--data", text], ["eval", str(self.run), "--data", path], ["generate", path], ["api", path, "--port", "1"],
                ["tokenizer", "train", "--data", path, "--out", out],
                ["tokenizer", "encode", "--tokenizer", path, "--in", text, "--out", out],
                ["tokenizer", "encode", "--tokenizer", str(self.checkpoint / "tokenizer.json"), "--in", path, "--out", out],
                ["data", "prepare", "--tokenizer", path, "--data", text, "--out", out],
                ["data", "prepare", "--tokenizer", "char", "--data", path, "--out", out], ["data", "inspect", path],
                ["plan", path], ["plan", "tiny-llama", "--hardware", path], ["compare", path, path], ["schedule", path],
                ["status", path]]

    def fixed_cases(self):
        cases = [Case([*command.split(), "--no-such-option"], ["--no-such-option"]) for command in COMMANDS]
        cases += [Case([*command.split(), "--set"], ["--set", "required"]) for command in ("train", "plan", "schedule")]
        cases += [Case(words, ["unknown command", "no-such", "nothing to do", "COMMAND"])
                  for words in (["no-such"], ["tokenizer", "no-such"], ["data", "no-such"], ["bench", "no-such"])]
        cases += [Case(words, [os.path.basename(path).split("\x1b")[0], "empty", "no text"], may_be_valid=True)
                  for path in self.odd for words in self.reading(path)]
        cases += [Case(["launch", "--hosts", hosts, "--", *self.test.train(self.out, {})], ["--hosts", "hosts"],
                       may_be_valid=hosts == "") for hosts in HOSTS if hosts]
        cases += [Case(["train", "tiny-llama", "--print-config", "--set", f"{key}={value}"], [key], may_be_valid=True)
                  for key in self.keys for value in VALUES]
        cases += [Case(["train", "tiny-llama", "--print-config", "--set", f"{key[:-1]}={1}"], [key[:-1]], may_be_valid=True)
                  for key in self.keys]
        return cases

    def toml_case(self):
        path = self.test.folder / "odd" / "config.toml"
        path.write_text(self.random.choice(TOML))
        return Case([self.random.choice(["train", "plan", "schedule"]), str(path)], ["config.toml"])

    def damaged_case(self):
        """Damages one valid file and returns a command that reads it."""
        copy = self.test.folder / "damaged"
        shutil.rmtree(copy, ignore_errors=True)
        source, words = self.random.choice([
            (self.checkpoint, ["eval", str(copy), "--data", str(self.test.text)]),
            (self.checkpoint, ["generate", str(copy), "--tokens", "4"]),
            (self.data, ["data", "inspect", str(copy)]),
            (self.data, ["train", "tiny-llama", "--data", str(copy), "--out", str(self.out), "--set", "train.steps=2"]),
            (self.checkpoint, ["tokenizer", "encode", "--tokenizer", str(copy / "tokenizer.json"), "--in",
                               str(self.test.text), "--out", "/dev/null"])])
        shutil.copytree(source, copy)
        names = [path.name for path in sorted(copy.iterdir()) if path.name != "MANIFEST.json" or self.random.random() < 0.5]
        name = self.random.choice(["tokenizer.json"] if words[0] == "tokenizer" else names)
        (copy / name).write_bytes(damage(self.random, (copy / name).read_bytes()))
        if (copy / "MANIFEST.json").exists() and self.random.random() < 0.5 and words[0] != "tokenizer":
            for unhashed in ("MANIFEST.json", "trainer.json", "optimizer.safetensors"):  # a folder of another program
                (copy / unhashed).unlink(missing_ok=True)
        return Case(words, [name, "damaged", "tokenizer"], may_be_valid=True)


def check(test, inputs, case):
    before = snapshot(test.folder)
    outcome = test.run(case.words, LIMIT_S)
    faults = []
    lines = [line for line in re.sub(r"\x1b\[[0-9;]*[mK]|\r", "", outcome.output).splitlines() if line.startswith("ingot: ")]
    if outcome.code == 0 and case.may_be_valid:
        shutil.rmtree(inputs.out, ignore_errors=True)
        inputs.out.unlink(missing_ok=True) if inputs.out.is_file() else None
    elif outcome.code not in REFUSALS:
        faults.append(f"exit code {outcome.code}")
    else:
        if len(lines) != 1:
            faults.append(f"{len(lines)} lines begin with 'ingot:'")
        if not any(name in outcome.output for name in case.names):
            faults.append(f"none of {case.names} is named")
    if "\x1b" in outcome.output and not test.options.pty:
        faults.append("the output has an escape")
    after = snapshot(test.folder)
    if changed := [path for path in sorted(before.keys() | after.keys()) if before.get(path) != after.get(path)]:
        faults.append(f"files were changed: {changed[:3]}")
    if faults:
        test.fail(f"{case.words}: {'; '.join(faults)}", outcome.output)
    return outcome.code


def main():
    test = chaos.Chaos(__doc__, 800, 80, "bad inputs")
    inputs, codes = Inputs(test), {}
    fixed = inputs.fixed_cases()
    test.random.shuffle(fixed)
    while test.done < test.count and len(test.failures) < 30:
        choice = test.random.random()
        case = inputs.damaged_case() if choice < 0.4 else inputs.toml_case() if choice < 0.45 else \
            fixed.pop() if fixed else inputs.damaged_case()
        code = check(test, inputs, case)
        codes[code] = codes.get(code, 0) + 1
        test.done += 1
    return test.finish(", ".join(f"{count} with exit code {code}" for code, count in sorted(codes.items())))


if __name__ == "__main__":
    sys.exit(main())
