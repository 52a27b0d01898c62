// Tests of `ingot watch`: its frames, its lines, and the program on a pseudo-terminal.
#include <gmock/gmock.h>

#include <csignal>
#include <cstdlib>
#include <sstream>

#include "ingot/console/live_line.h"
#include "ingot/run/record/utc_time.h"
#include "ingot/watch/watch_frame.h"
#include "ingot/watch/watcher.h"
#include "tests/apps/pty_run.h"
#include "tests/regress/run_script.h"
#include "tests/watch/written_run.h"

namespace ingot {
namespace {

using testing::HasSubstr;
using testing::Not;

RunSet& refreshed(RunSet& runs) {
  runs.refresh(0);
  for (size_t i = 0; i < runs.size(); ++i) runs.run(i).refresh_metrics(size_t{1} << 20);
  return runs;
}

TEST(WatchFrame, FitsEverySizeAndShowsCurvesWhereThereIsRoom) {
  const WrittenRun run("framed");
  for (int step = 1; step <= 100; ++step) run.append_step(step, 6.0 / step);
  run.append("{\"step\":100,\"val_loss\":2.5}\n");
  write_file(run.folder() / "samples/step-000000100.txt", "--- 1\nOnce upon a time\nthere was\n");
  RunSet runs({run.folder().string()});
  refreshed(runs);
  for (const int columns : {1, 5, 20, 29, 30, 80, 200})
    for (const int rows : {1, 2, 5, 9, 24, 60}) {
      const std::string frame = watch_frame(runs, {.columns = columns, .rows = rows}, 0);
      std::istringstream lines(frame);
      int count = 0;
      for (std::string line; std::getline(lines, line); ++count)
        EXPECT_LE(display_cells(line), columns) << columns << " x " << rows << ": " << line;
      EXPECT_LE(count, rows) << columns << " x " << rows;
    }
  const std::string frame = watch_frame(runs, {.columns = 100, .rows = 30}, 0);
  for (const char* text :
       {"completed  step 3/4 75.0% | loss 0.0600 | val 2.5000", "* train", "Once upon a time", " |"})
    EXPECT_THAT(frame, HasSubstr(text));
  EXPECT_THAT(watch_frame(runs, {.columns = 100, .rows = 8}, 0), Not(HasSubstr("Once upon")));
}

// Seen: the status line was cut at the window's width, so that the rates of a running run could not be read.
TEST(WatchFrame, AStatusLineThatIsTooWideGoesOnInTheNextLine) {
  const WrittenRun run("wide");
  run.append_step(1, 6);
  run.append("{\"step\":1,\"val_loss\":2.5}\n");
  RunSet runs({run.folder().string()});
  refreshed(runs);
  const std::string whole = watch_frame(runs, {.columns = 300, .rows = 1}, 0);
  EXPECT_THAT(whole, HasSubstr(" | loss 6.0000 | val 2.5000"));
  const std::string frame =
      watch_frame(runs, {.columns = static_cast<int>(whole.find(" | val")) + 2, .rows = 4}, 0);
  EXPECT_THAT(frame, HasSubstr("loss 6.0000\n    val 2.5000"));
  EXPECT_THAT(frame, Not(HasSubstr("...")));
}

TEST(WatchFrame, HostileTextNeverReachesTheTerminalRaw) {
  const WrittenRun run("evil\x1b]0;x\x07", "completed\x1b[2J");
  run.append_step(1, 6);
  write_file(run.folder() / "samples/step-000000001.txt", "Once\x1b[31m\x9b upon\r\b");
  write_file(run.folder() / "incidents.jsonl",
             R"({"kind": "error", "time": "2026-11-20T10:00:00Z", "reason": "\u001b[2J"})"
             "\n");
  RunSet runs({run.root().string()});
  const std::string frame = watch_frame(refreshed(runs), {.columns = 200, .rows = 40}, 0);
  EXPECT_THAT(frame, HasSubstr("Once\\x1b[31m"));
  for (const char c : frame)
    EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 || c == '\n') << static_cast<int>(c);
}

TEST(WatchFrame, SeveralRunsShareAPlot) {
  const WrittenRun first("one");
  first.append_step(1, 6);
  first.append_step(2, 5);
  const std::filesystem::path other = first.root() / "two";
  make_folders(other);
  write_file(other / "run.json",
             R"({"status": "failed", "steps": 2, "exit_code": 5, "error": "the loss is not finite"})");
  write_file(other / "metrics.jsonl", "{\"step\":1,\"loss\":7}\n{\"step\":2,\"loss\":8}\n");
  RunSet runs({first.root().string()});
  const std::string frame = watch_frame(refreshed(runs), {.columns = 100, .rows = 30}, 0);
  EXPECT_THAT(frame, HasSubstr("* one  o two"));
  EXPECT_THAT(frame, HasSubstr("two  failed  step 2 | loss 8.0000 | exit code 5: the loss is not finite"));
}

TEST(WatchCommand, PrintsLinesAndEndsWithTheCodeOfTheRun) {
  const WrittenRun run("lines");
  run.append_step(3, 6);
  make_folders(run.root() / "failed");
  write_file(run.root() / "failed/run.json",
             R"({"status": "failed", "steps": 2, "exit_code": 5, "end": "2026-11-20T10:00:00Z"})");
  make_folders(run.root() / "cut");
  write_file(run.root() / "cut/run.json",
             R"({"status": "interrupted", "exit_code": 75, "end": "2026-11-20T10:00:00Z"})");
  make_folders(run.root() / "far");
  write_file(
      run.root() / "far/run.json",
      R"({"status": "running", "process": {"host": "node7", "boot_id": "b", "pid": 1, "start_ticks": 1}})");
  const Outcome outcome = run_script(run.root(), R"sh(
$ingot watch lines; echo code $?
$ingot watch lines failed; echo code $?
$ingot watch cut; echo code $?
$ingot watch far > far.txt & p=$!
for i in $(seq 200); do grep -qs node7 far.txt && break; sleep 0.05; done
kill -INT $p; wait $p; echo code $?; cat far.txt
$ingot watch samples; echo code $?)sh");
  EXPECT_THAT(outcome.output, testing::StartsWith("lines  completed  step 3/4 75.0% | loss 6.0000"));
  EXPECT_THAT(outcome.output, HasSubstr("\ncode 0\n"));
  EXPECT_THAT(outcome.output, HasSubstr("failed  failed  step 2 | exit code 5"));
  EXPECT_THAT(outcome.output, HasSubstr("\ncode 5\n"));
  EXPECT_THAT(outcome.output, HasSubstr("code 75\ncode 75\nfar  running or died  step 0 | on node7"));
  EXPECT_THAT(outcome.output, HasSubstr("samples is no folder"));
  EXPECT_THAT(outcome.output, testing::EndsWith("code 2\n"));
}

TEST(ExportRunCommand, StartsPythonWithTheScriptAndSaysWhatIsMissing) {
  const WrittenRun run("exported");
  const Outcome outcome = run_script(run.root(), R"sh(
printf '#!/bin/sh\nshift; printf "%%s" "$1" | grep -c "^def to_mlflow"; shift; printf "<%%s>" "$@"; exit 7\n' > fake; chmod +x fake
INGOT_PYTHON=./fake $ingot export-run exported --mlflow --name 'a b' --to "x'y"; echo code $?
INGOT_PYTHON=./none $ingot export-run exported --wandb; echo code $?
$ingot export-run exported --wandb --mlflow; echo code $?
$ingot export-run nothing --wandb; echo code $?)sh");
  EXPECT_THAT(
      outcome.output,
      testing::StartsWith("1\n<--mlflow><--project=ingot><--name=a b><--to=x'y><--><exported>code 7\n"));
  EXPECT_THAT(outcome.output, HasSubstr("./none cannot be started"));
  EXPECT_THAT(outcome.output, HasSubstr("name one of --wandb and --mlflow"));
  EXPECT_THAT(outcome.output, HasSubstr("nothing holds no run"));
  EXPECT_THAT(outcome.output, testing::EndsWith("code 2\n"));
}

// Seen: --params kept every line of both files in memory, and a line without an end was read whole.
TEST(ExportRunCommand, TakesTheSameMemoryForALongRun) {
  if (std::system("python3 -c '' 2>/dev/null") != 0) GTEST_SKIP() << "there is no python3";
  const WrittenRun run("long");
  const Outcome outcome = run_script(run.root(), R"sh(
printf '#!/bin/sh\nulimit -v 120000; exec python3 "$@"\n' > limited; chmod +x limited
cat > wandb.py <<'EOF'
import types
class Table:
    def __init__(self, columns, data): self.data = data
def log(values, step=None):
    count["steps"] += step is not None
    count["numbers"] += len(values)
def finish(exit_code): print(count)
def init(**settings): return types.SimpleNamespace(log=log, finish=finish, summary={})
count = {"steps": 0, "numbers": 0}
EOF
python3 - <<'EOF'
with open("long/metrics.jsonl", "w") as metrics, open("long/params.jsonl", "w") as params:
    for step in range(1, 100001):
        metrics.write('{"step": %d, "loss": 1.5}\n' % step)
        if step % 2 == 0:
            params.write('{"step": %d, "param": "w", "grad_norm": 2, "weight_norm": 3}\n' % step)
    metrics.write("x" * 200000000 + '{"step": 100001, "loss": 1.5}\n{"step": 100002, "loss": 1.5}\n')
for step in range(1500):
    open("long/samples/step-%09d.txt" % step, "w").write("--- 1\n")
EOF
PYTHONPATH=. INGOT_PYTHON=./limited $ingot export-run long --wandb --params; echo code $?)sh");
  EXPECT_EQ(outcome.output,
            "{'steps': 100001, 'numbers': 200002}\nexported long: 100001 steps, 1000 samples, to wandb, "
            "project ingot\ncode 0\n");
}

std::string watch_command(const WrittenRun& run) {
  return "exec " INGOT_PROGRAM " watch " + run.folder().string();
}

TEST(WatchCommand, RedrawsOnATerminalAndLeavesItAsItWas) {
  const WrittenRun run("drawn", "running");
  write_file(run.folder() / "run.json",
             R"({"status": "running", "process": {"host": "node7", "boot_id": "b", "pid": 1}})");
  run.append_step(1, 6);
  PtyRun terminal(watch_command(run), 20, 60);
  EXPECT_THAT(terminal.until("\x1b[J"),
              testing::AllOf(HasSubstr("\x1b[?1049h"), HasSubstr("step 1/4"), HasSubstr("* train")));
  run.append_step(2, 5);
  EXPECT_THAT(terminal.until("step 2/4"), HasSubstr("step 2/4"));
  terminal.resize(3, 24);
  EXPECT_THAT(terminal.until("...\x1b[K\x1b[J"), HasSubstr("\x1b[H"));  // one line that is cut
  write_file(run.folder() / "run.json",
             R"({"status": "completed", "steps": 4, "end": "2026-11-20T10:00:00Z"})");
  const std::string last = terminal.until("completed  st");
  EXPECT_THAT(last, HasSubstr("\x1b[?25h\x1b[?1049l"));
  EXPECT_EQ(terminal.wait(), 0);
}

TEST(WatchCommand, ASignalLeavesTheTerminalAsItWas) {
  const WrittenRun run("left", "running");
  write_file(run.folder() / "run.json",
             R"({"status": "running", "process": {"host": "node7", "boot_id": "b", "pid": 1}})");
  PtyRun terminal(watch_command(run), 20, 60);
  terminal.until("\x1b[J");
  terminal.send(SIGINT);
  EXPECT_THAT(terminal.until("\x1b[?1049l"), HasSubstr("\x1b[?25h\x1b[?1049l"));
  EXPECT_EQ(terminal.wait(), 75);
}

}  // namespace
}  // namespace ingot
