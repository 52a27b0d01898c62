"""Tries mutants: compiles, compares the code with the build's, and runs the tests that run the line until one fails."""
import collections
import re
import shutil
import threading
import time

from .build import OBJECT_LIMIT, Unbuildable, can_mount, failed_test, run, with_program

FILTER_BYTES = 100_000  # of the tests' names in one command
FIRST_S = 3.0  # the quick tests that run few other lines are tried before all others


class Trial:
    def __init__(self, build, coverage, folder, tests_s, own=False):
        self.build, self.coverage, self.folder, self.tests_s, self.own = build, coverage, folder, tests_s, own
        self.main = build.folder / "ingot"
        self.patience_s = 10
        self.flaky, self.confirmed, self.lock = set(), set(), threading.Lock()

    def limit_s(self, seconds):
        return self.patience_s + 5 * seconds

    def batches(self, mutant, changed):
        """Returns lists of tests of one program, in the order in which they are tried, and the number of tests left out."""
        folder = mutant.file.split("/")[1]
        if self.own:
            names = [t.name for t in self.build.tests.values() if t.program.name == f"ingot_{folder}_tests"]
        else:
            names = self.coverage.tests_of(mutant.file, mutant.line + 1, self.build.sources_of(changed))
        seconds = {n: self.coverage.rows[n]["seconds"] if n in self.coverage.rows else 1.0 for n in names}
        by_program = collections.defaultdict(list)
        for name in names:
            test = self.build.tests[name]
            by_program[test.program.name, test.name if test.ranks else ""].append(test)
        groups = []
        for (program, _), tests in by_program.items():
            tests.sort(key=lambda t: (self.coverage.sizes.get(t.name, 0) + 1) * seconds[t.name])
            first, rest, total = [], [], 0.0
            for test in tests:
                total += seconds[test.name]
                (first if total < FIRST_S or not first else rest).append(test)
            is_own = program == f"ingot_{folder}_tests"
            for group, rank in ((first, 0), (rest, 1)):
                if group:
                    groups.append((not is_own, rank if is_own else 0, sum(seconds[t.name] for t in group), group))
        groups.sort(key=lambda g: g[:3])
        spent, result, left_out = 0.0, [], 0
        for _, _, cost, group in groups:
            if spent + cost > self.tests_s and result:
                left_out += len(group)
                continue
            spent += cost
            result.append((cost, group))
        return result, left_out

    def run_tests(self, tests, program, main, limit_s):
        """Runs tests of one program; returns (has failed, name of the failed GoogleTest test or ctest test, whether it hung)."""
        if tests[0].ranks or not tests[0].filter:
            code, text = run(with_program(tests[0].command_with(program), self.main, main), tests[0].cwd, tests[0].environment, limit_s)
            return code != 0, tests[0].name, code is None
        for part in self.filters(tests):
            command = [str(program), f"--gtest_filter={part}", "--gtest_fail_fast"]
            code, text = run(with_program(command, self.main, main), tests[0].cwd, tests[0].environment, limit_s)
            if code != 0:
                return True, failed_test(text), code is None
        return False, "", False

    @staticmethod
    def filters(tests):
        parts = [""]
        for test in tests:
            if len(parts[-1]) + len(test.filter) > FILTER_BYTES:
                parts.append("")
            parts[-1] += (":" if parts[-1] else "") + test.filter
        return parts

    def is_confirmed(self, tests, name, limit_s, hung):
        """Runs the test that failed on the build itself, once per session, and returns whether it passes there (if
        the test hung: in less than half of the limit)."""
        if (name, hung) in self.confirmed:
            return True
        if tests[0].ranks:
            command = tests[0].command
        else:
            command = [str(tests[0].program), "--gtest_filter=" + (name or self.filters(tests)[0])]
        start = time.monotonic()
        code, _ = run(command, tests[0].cwd, tests[0].environment, limit_s)
        if code != 0 or hung and time.monotonic() - start > limit_s / 2:
            self.flaky.add(name)
            print(f"  {name} does not pass on the build itself in this session: it counts for nothing", flush=True)
            return False
        self.confirmed.add((name, hung))
        return True

    def changed_objects(self, mutant, names, overlay, scratch):
        """Compiles objects with the mutant; returns those whose code differs from that of the build."""
        changed = {}
        for name in names:
            out = scratch / "objects" / name
            self.build.compile(name, out, overlay=overlay, file=mutant.file)
            if out.read_bytes() != (self.build.folder / name).read_bytes():
                changed[name] = out
        return changed

    def try_mutant(self, mutant, worker):
        """Returns what came out, as a dictionary for the file of results."""
        start = time.monotonic()
        scratch = self.folder / f"worker-{worker}"
        shutil.rmtree(scratch, ignore_errors=True)
        overlay = scratch / "source"
        target = overlay / mutant.file
        target.parent.mkdir(parents=True)
        target.write_text(mutant.apply((self.build.root / mutant.file).read_text()))
        try:
            result = self.outcome(mutant, overlay, scratch)
        except Unbuildable as error:
            first = re.search(r"error: (.*)", str(error))
            result = {"status": "unbuildable", "why": first[1][:120] if first else ""}
        shutil.rmtree(scratch, ignore_errors=True)
        return {**result, "seconds": round(time.monotonic() - start, 1)}

    def outcome(self, mutant, overlay, scratch):
        users = self.build.library_users(mutant.file)
        changed = self.changed_objects(mutant, users, overlay, scratch)
        if not changed and users:
            return {"status": "equivalent"}
        batches, left_out = self.batches(mutant, changed)
        if not batches:
            return {"status": "uncovered"}
        linked, run_count = {}, 0

        def link(program):
            if program not in linked:
                objects = self.build.objects_of(program)
                mine = {n: o for n, o in changed.items() if n in objects}
                if mutant.file.endswith(".h"):
                    others = sorted((self.build.users[mutant.file] & objects) - set(users))
                    mine |= self.changed_objects(mutant, others, overlay, scratch)
                linked[program] = scratch / "programs" / program.name
                self.build.link(program, linked[program], mine)
            return linked[program]

        for cost, tests in batches:
            tests = [t for t in tests if t.name not in self.flaky]
            # Only a program's own record says whether its tests start `ingot`.
            starts_main = any("ingot" in self.coverage.rows[t.name]["starts"] for t in tests if t.name in self.coverage.rows)
            main = link(self.main) if starts_main and can_mount() else None
            limit = self.limit_s(cost)
            while tests:
                failed, name, hung = self.run_tests(tests, link(tests[0].program), main, limit)
                run_count += len(tests)
                if not failed:
                    break
                if self.is_confirmed(tests, name, limit, hung):
                    return {"status": "killed", "test": name, "how": "hang" if hung else "failure"}
                tests = [t for t in tests if t.name != name and t.filter != name and not
                         (t.filter.endswith(".*") and name.startswith(t.filter[:-1]))]
        return {"status": "survived", "tests": run_count, **({"left_out": left_out} if left_out else {})}



def lines_to_mutate(build, files, mutants_of):
    """Returns the mutants of each line of the files, without files that the build leaves out or too many objects include."""
    return [line for name, path in files.items() if 0 < len(build.library_users(name)) <= OBJECT_LIMIT
            for line in mutants_of(name, path.read_text())]
