// Seen: `mknod n c 1 3; ingot schedule tiny-llama --out n` turned the device node n into a regular file
// (as root, --out /dev/null broke the machine), and FIFOs and links were replaced as well; a .lock that
// was a link emptied its target; TMPDIR=/nonexistent made a completed run fail; killed runs left *.tmp.PID
// files behind forever.
// Wanted: an output replaces only regular files and keeps their permissions; any other kind of file is
// written to or refused.
#include <sys/sysmacros.h>

#include "tests/regress/attack_fixture.h"

namespace ingot {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class OutputPlaces : public AttackTest {};

TEST_F(OutputPlaces, ADeviceIsWrittenToAndStays) {
  if (::mknod(path("null").c_str(), S_IFCHR | 0666, makedev(1, 3)) != 0)
    GTEST_SKIP() << "SKIPPED LOUDLY: a device cannot be made here (needs root)";
  const Outcome outcome = bash("$ingot schedule tiny-llama --out null");
  if (outcome.output.find("Permission denied") != std::string::npos)
    GTEST_SKIP() << "SKIPPED LOUDLY: devices in the temporary folder cannot be opened here (nodev)";
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(attack_file_type(path("null")), S_IFCHR);
}

TEST_F(OutputPlaces, AFifoGivesItsReaderTheWholeFile) {
  const Outcome outcome = bash(
      "mkfifo pipe; timeout -s KILL 20 cat pipe > got & timeout -s KILL 20 $ingot schedule tiny-llama --out "
      "pipe; code=$?\n"
      "wait; exit $code");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(attack_file_type(path("pipe")), S_IFIFO);
  EXPECT_THAT(read_file(path("got")), AllOf(HasSubstr("<svg"), HasSubstr("</svg>")));
}

// The output is a link to /proc/self/fd/1, as /dev/stdout is. It also works if standard output is a file,
// to which later commands append.
TEST_F(OutputPlaces, StandardOutputByItsPathGetsTheFileInOrder) {
  const Outcome outcome = bash(
      "ln -s /proc/self/fd/1 out; $ingot schedule tiny-llama --out out || exit $?\n"
      "echo first > file; $ingot schedule tiny-llama --out out >> file || exit $?; echo last >> file");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(attack_file_type(path("out")), S_IFLNK);
  for (const std::string& text : {outcome.output, read_file(path("file"))}) {
    const size_t drawing = text.find("Learning rate"), svg = text.find("<svg"), end = text.find("written: ");
    EXPECT_LT(drawing, svg) << text;
    EXPECT_LT(svg, end) << text;
    EXPECT_NE(end, std::string::npos) << text;
  }
  EXPECT_THAT(read_file(path("file")), AllOf(testing::StartsWith("first\n"), testing::EndsWith("last\n")));
}

TEST_F(OutputPlaces, ALinkStaysAndItsTargetIsReplacedWithItsPermissions) {
  const Outcome outcome = bash(
      "mkdir real; echo old > real/target; chmod 0640 real/target; ln -s real/target link; ln -s link chain\n"
      "$ingot schedule tiny-llama --out chain || exit $?\nln -s real/new dangling\n"
      "$ingot schedule tiny-llama --out dangling");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(attack_file_type(path("chain")), S_IFLNK);
  EXPECT_EQ(attack_file_type(path("link")), S_IFLNK);
  EXPECT_EQ(attack_file_type(path("dangling")), S_IFLNK);
  EXPECT_THAT(read_file(path("real/target")), HasSubstr("</svg>"));
  EXPECT_THAT(read_file(path("real/new")), HasSubstr("</svg>"));
  struct stat info {};
  ASSERT_EQ(::stat(path("real/target").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0640u);
  int files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_ / "real")) ++files;
  EXPECT_EQ(files, 2) << "nothing else is left beside the targets";
}

TEST_F(OutputPlaces, ALoopOfLinksAndAFolderAreRefusedByName) {
  const Outcome loop = bash("ln -s b a; ln -s a b; $ingot schedule tiny-llama --out a");
  EXPECT_EQ(loop.exit_code, 6) << loop.output;
  EXPECT_THAT(loop.output, HasSubstr("a: is a link that leads back to itself"));
  const Outcome folder = bash("mkdir d; $ingot schedule tiny-llama --out d");
  EXPECT_EQ(folder.exit_code, 6) << folder.output;
  EXPECT_THAT(folder.output, HasSubstr("d: is a folder; give the name of a file"));
}

TEST_F(OutputPlaces, AModelBehindALoopOfLinksIsADataError) {
  for (const char* command : {"generate a --prompt x", "eval a --data text.txt"}) {
    const Outcome outcome =
        bash("echo text > text.txt; ln -sf b a; ln -sf a b; $ingot " + std::string(command));
    EXPECT_EQ(outcome.exit_code, 3) << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr("a/config.json: cannot be read"));
  }
}

TEST_F(OutputPlaces, ALockThatIsALinkLeavesItsTargetUntouched) {
  for (const char* make_lock : {"ln -s ../victim run/.lock", "ln victim run/.lock", "mkfifo run/.lock"}) {
    const Outcome outcome = bash("rm -rf run; mkdir run; echo precious > victim; " + std::string(make_lock) +
                                 "; timeout -s KILL 20 $ingot " + train("run"));
    EXPECT_EQ(outcome.exit_code, 6) << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr(".lock: must be a plain file of its own, not a link"));
    EXPECT_EQ(read_file(path("victim")), "precious\n") << make_lock;
  }
}

TEST_F(OutputPlaces, ALogThatIsALinkLeadsToItsTargetAndAFifoWithoutAReaderIsRefused) {
  const Outcome first = bash("$ingot " + train("run"));
  ASSERT_EQ(first.exit_code, 0) << first.output;
  const Outcome linked = bash(
      "mv run/train.log elsewhere; ln -s ../elsewhere run/train.log\n"
      "$ingot train --resume --out run --set train.steps=5");
  EXPECT_EQ(linked.exit_code, 0) << linked.output;
  EXPECT_EQ(attack_file_type(path("run/train.log")), S_IFLNK);
  EXPECT_THAT(read_file(path("elsewhere")),
              AllOf(HasSubstr("completed after 4"), HasSubstr("completed after 5")));
  const Outcome fifo = bash(
      "rm run/train.log; mkfifo run/train.log\n"
      "timeout -s KILL 20 $ingot train --resume --out run --set train.steps=6");
  EXPECT_EQ(fifo.exit_code, 6) << fifo.output;
  EXPECT_THAT(fifo.output, HasSubstr("train.log: is a FIFO without a reader"));
}

TEST_F(OutputPlaces, TheBaselineNeedsNoTemporaryFolderAndNoProgram) {
  const Outcome without_folder = bash("export TMPDIR=/nonexistent; $ingot " + train("a"));
  EXPECT_EQ(without_folder.exit_code, 0) << without_folder.output;
  EXPECT_THAT(read_file(path("a/run.json")), HasSubstr("\"completed\""));
  const Outcome without_programs = bash("export PATH=/nonexistent; $ingot " + train("b"));
  EXPECT_EQ(without_programs.exit_code, 0) << without_programs.output;
  EXPECT_THAT(without_programs.output, HasSubstr("gzip -9, xz -9e: cannot be run; install it to compare"));
}

TEST_F(OutputPlaces, TheTemporariesOfDeadProcessesGoWhenTheRunStartsAgain) {
  const Outcome first = bash("$ingot " + train("run"));
  ASSERT_EQ(first.exit_code, 0) << first.output;
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ASSERT_GT(child, 0);
  ::waitpid(child, nullptr, 0);  // no process has this pid now
  const std::string dead = ".tmp." + std::to_string(child), live = ".tmp." + std::to_string(::getpid());
  for (const char* name : {"run/run.json", "run/metrics.jsonl", "run/samples/step-000000004.txt"})
    write_file(folder_ / (name + dead), "torn");
  write_file(folder_ / ("run/mine" + live), "in use");
  const Outcome again = bash("$ingot train --resume --out run --set train.steps=5");
  EXPECT_EQ(again.exit_code, 0) << again.output;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ / "run"))
    EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr(dead)));
  EXPECT_EQ(read_file(path("run/mine" + live)), "in use");
}

}  // namespace
}  // namespace ingot
