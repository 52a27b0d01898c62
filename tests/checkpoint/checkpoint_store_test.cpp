#include "ingot/checkpoint/checkpoint_store.h"

#include <gmock/gmock.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <fstream>
#include <random>

#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/formats/safetensors.h"
#include "tests/checkpoint/newest_good.h"
#include "tests/checkpoint/traced_child.h"
#include "tests/reference/error_of.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const DamageReport kNoDamage = [](const fs::path& path, const std::string& what) {
  ADD_FAILURE() << path << ": " << what;
};

void put(const fs::path& path, const std::string& text) {
  OutputFile file(path);
  file.write(text);
  file.close();
}

// Saves a checkpoint of two files that contain their step.
void save(CheckpointStore& store, int64_t step) {
  const fs::path folder = store.begin(step);
  put(folder / "model.safetensors", fmt::format("weights of {} ", step) + std::string(20'000, 'w'));
  put(folder / "state.json", fmt::format("{{\"step\": {}}}", step));
  store.commit({{"config_hash", "c0ffee"}, {std::string(kFiniteFlag), 1}});
}

class CheckpointStoreTest : public ::testing::Test {
 protected:
  CheckpointStoreTest() { fs::create_directories(root_); }
  ~CheckpointStoreTest() override { fs::remove_all(root_); }

  std::vector<int64_t> steps() const {
    std::vector<int64_t> out;
    for (const Checkpoint& c : list_checkpoints(folder_)) out.push_back(c.step);
    return out;
  }
  // Returns the step of the newest good checkpoint, or -1 if there is none, and checks its content.
  int64_t newest() const {
    const std::optional<Checkpoint> found = newest_good_checkpoint(folder_, {});
    if (!found) return -1;
    EXPECT_EQ(read_file(found->path / "state.json"), fmt::format("{{\"step\": {}}}", found->step));
    return found->step;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& entry : fs::directory_iterator(folder_)) out.push_back(entry.path().filename());
    std::ranges::sort(out);
    return out;
  }

  // The folder is in memory if possible: thousands of flushes to a disk take minutes and test nothing more.
  fs::path root_ = (::access("/dev/shm", W_OK) == 0 ? fs::path("/dev/shm") : fs::temp_directory_path()) /
                   ("ingot_checkpoints_" + std::to_string(::getpid()));
  fs::path folder_ = root_ / "run" / "checkpoints";
};

TEST_F(CheckpointStoreTest, CommitsListsAndFindsTheNewest) {
  CheckpointStore store(folder_);
  EXPECT_TRUE(store.list().empty());
  EXPECT_EQ(newest_good_checkpoint(folder_, kNoDamage), std::nullopt);
  for (const int64_t step : {100, 9, 1'000'000'000}) save(store, step);
  EXPECT_THAT(steps(), ::testing::ElementsAre(1'000'000'000, 100, 9));
  EXPECT_THAT(names(), ::testing::ElementsAre("step-000000009", "step-000000100", "step-1000000000"));
  const std::optional<Checkpoint> newest = newest_good_checkpoint(folder_, kNoDamage);
  ASSERT_TRUE(newest.has_value());
  EXPECT_EQ(newest->step, 1'000'000'000);
  const Manifest manifest = read_manifest(newest->path);
  EXPECT_EQ(std::get<int64_t>(manifest.metadata.at("step")), 1'000'000'000);
  EXPECT_EQ(std::get<std::string>(manifest.metadata.at("config_hash")), "c0ffee");
  EXPECT_EQ(fs::status(newest->path).permissions() & fs::perms::others_read, fs::perms::others_read);
  EXPECT_TRUE(list_checkpoints(root_ / "absent").empty());
}

TEST_F(CheckpointStoreTest, OtherFoldersAreIgnored) {
  CheckpointStore store(folder_);
  save(store, 5);
  for (const char* name :
       {"step-5", "step-0000000005", "step-00000000x", "step-", "step--00000001", "best", "latest"})
    fs::create_directories(folder_ / name);
  fs::create_symlink("step-000000005", folder_ / "step-000000006");
  put(folder_ / "step-000000007", "a file");
  EXPECT_THAT(steps(), ::testing::ElementsAre(5));
}

TEST_F(CheckpointStoreTest, AnUncommittedCheckpointLeavesNothing) {
  {
    CheckpointStore store(folder_);
    put(store.begin(1) / "a", "x");
    put(store.begin(2) / "a", "x");
    EXPECT_EQ(names().size(), 1u);
  }
  EXPECT_TRUE(names().empty());
  CheckpointStore store(folder_);
  EXPECT_THROW(store.commit(), Error);
  EXPECT_THROW(store.begin(-1), Error);
}

TEST_F(CheckpointStoreTest, OpeningRemovesOnlyLeftoversOfDeadProcesses) {
  fs::create_directories(folder_ / "tmp.000000007.AbC123");
  put(folder_ / "tmp.000000007.AbC123" / "model.safetensors", "half");
  for (const char* name :
       {"tmp.7.short", "tmp.x.AbC123", "tmp.000000007.AbC1234", "tmp", "tmp.notes", "mine"})
    fs::create_directories(folder_ / name);
  put(folder_ / "tmp.000000008.AbC123", "a file of somebody else");
  fs::create_directories(root_ / "elsewhere");
  fs::create_symlink(root_ / "elsewhere", folder_ / "tmp.000000009.AbC123");
  CheckpointStore living(folder_);
  put(living.begin(3) / "a", "x");
  const CheckpointStore second(folder_);  // keeps the folder that the first store is still writing
  EXPECT_EQ(names().size(), 9u);
  EXPECT_FALSE(fs::exists(folder_ / "tmp.000000007.AbC123"));
  EXPECT_TRUE(fs::exists(root_ / "elsewhere"));
  living.commit();
  EXPECT_THAT(steps(), ::testing::ElementsAre(3));
}

TEST_F(CheckpointStoreTest, TheSameStepIsReplacedWhole) {
  CheckpointStore store(folder_);
  save(store, 5);
  put(folder_ / "step-000000005" / "state.json", "damaged");
  EXPECT_EQ(newest(), -1);
  save(store, 5);
  EXPECT_EQ(newest(), 5);
  EXPECT_THAT(names(), ::testing::ElementsAre("step-000000005"));
}

TEST_F(CheckpointStoreTest, ADamagedCheckpointIsNamedAndTheNewestGoodOneIsUsed) {
  CheckpointStore store(folder_);
  for (const int64_t step : {10, 20, 30, 40}) save(store, step);
  put(folder_ / "step-000000040" / "state.json", "{\"step\": 41}");
  fs::remove(folder_ / "step-000000030" / "MANIFEST.json");
  std::string report;
  const std::optional<Checkpoint> found =
      newest_good_checkpoint(folder_, [&](const fs::path& path, const std::string& what) {
        report += path.filename().string() + ": " + what + "\n";
      });
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->step, 20);
  EXPECT_THAT(report, HasSubstr("step-000000040: state.json has hash"));
  EXPECT_THAT(report, HasSubstr("step-000000030: MANIFEST.json"));
  EXPECT_THAT(report, ::testing::Not(HasSubstr("step-000000020")));
}

TEST_F(CheckpointStoreTest, EveryFlippedBitAndEveryTruncationIsDetected) {
  CheckpointStore store(folder_);
  save(store, 1);
  std::mt19937_64 random(3);
  for (const char* name : {"model.safetensors", "state.json", "MANIFEST.json"}) {
    const fs::path path = folder_ / "step-000000001" / name;
    const std::string good = read_file(path);
    for (int i = 0; i < 300; ++i) {
      std::string text = good;
      const size_t bit = random() % (8 * good.size());
      text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << (bit % 8)));
      std::ofstream(path, std::ios::binary) << text;
      ASSERT_EQ(newest(), -1) << name << " bit " << bit;
    }
    for (size_t n = 0; n < good.size(); n += 1 + good.size() / 200) {
      std::ofstream(path, std::ios::binary) << good.substr(0, n);
      ASSERT_EQ(newest(), -1) << name << " cut to " << n;
    }
    std::ofstream(path, std::ios::binary) << good;
    ASSERT_EQ(newest(), 1);
  }
}

TEST_F(CheckpointStoreTest, PruneKeepsOldOnesUntilTheNewestIsVerified) {
  CheckpointStore store(folder_);
  for (const int64_t step : {10, 20, 30, 40}) save(store, step);
  EXPECT_EQ(store.prune(10, kNoDamage), 0);
  EXPECT_EQ(store.prune(3, kNoDamage), 1);
  EXPECT_THAT(steps(), ::testing::ElementsAre(40, 30, 20));

  const std::string good = read_file(folder_ / "step-000000040" / "state.json");
  put(folder_ / "step-000000040" / "state.json", "damaged");
  std::string report;
  EXPECT_EQ(store.prune(1, [&](const fs::path&, const std::string& what) { report += what; }), 0);
  EXPECT_THAT(report, HasSubstr("state.json"));
  EXPECT_THAT(steps(), ::testing::ElementsAre(40, 30, 20));

  put(folder_ / "step-000000040" / "state.json", good);
  EXPECT_EQ(store.prune(0, kNoDamage), 2);  // prune never removes the last good checkpoint
  EXPECT_THAT(names(), ::testing::ElementsAre("step-000000040"));
}

// Saves a checkpoint with one tensor. If `is_flagged` is true, its manifest says that all numbers are finite.
void save_numbers(CheckpointStore& store, int64_t step, std::vector<float> numbers, bool is_flagged) {
  const fs::path folder = store.begin(step);
  const SafetensorsSource w{.name = "w",
                            .dtype = DType::f32,
                            .shape = {std::ssize(numbers)},
                            .bytes = std::as_bytes(std::span(numbers)),
                            .stream = {}};
  write_safetensors(folder / "model.safetensors", std::span(&w, 1));
  ManifestMetadata metadata;
  if (is_flagged) metadata[std::string(kFiniteFlag)] = 1;
  store.commit(metadata);
}

// A checkpoint of an older program has no such flag and may contain NaN.
TEST_F(CheckpointStoreTest, PruneNeverLeavesOnlyAnUnhealthyCheckpoint) {
  CheckpointStore store(folder_);
  save_numbers(store, 10, {1, 2}, false);
  save_numbers(store, 20, {1, 2}, true);
  save_numbers(store, 30, {1, std::nanf("")}, false);
  std::string report;
  const auto listen = [&](const fs::path& path, const std::string& what) {
    report += path.filename().string() + ": " + what;
  };
  EXPECT_EQ(store.prune(1, listen), 0);
  EXPECT_EQ(report, "step-000000030: model.safetensors: tensor w, element 1 is nan");
  EXPECT_THAT(steps(), ::testing::ElementsAre(30, 20, 10));
  report.clear();
  EXPECT_TRUE(store.is_good(30, listen)) << "its bytes are what was written";
  EXPECT_EQ(store.newest_healthy(listen)->step, 20);
  EXPECT_THAT(report, HasSubstr("element 1 is nan"));

  save_numbers(store, 40, {1, 2}, false);  // it has no flag, but inspection finds it healthy
  EXPECT_EQ(store.prune(1, kNoDamage), 3);
  EXPECT_THAT(steps(), ::testing::ElementsAre(40));
}

TEST_F(CheckpointStoreTest, PruneSparesTheBestCheckpoint) {
  CheckpointStore store(folder_);
  EXPECT_EQ(best_checkpoint(folder_), std::nullopt);
  for (const int64_t step : {1, 2, 3}) save(store, step);
  store.set_best(2);
  save(store, 4);
  EXPECT_EQ(store.prune(1, kNoDamage), 2);
  EXPECT_THAT(steps(), ::testing::ElementsAre(4, 2));
  ASSERT_TRUE(best_checkpoint(folder_));
  EXPECT_EQ(best_checkpoint(folder_)->step, 2);
  EXPECT_EQ(read_file(folder_ / "best" / "state.json"), "{\"step\": 2}");
  EXPECT_TRUE(verify_checkpoint(folder_ / "best").empty());
  fs::rename(root_ / "run", root_ / "moved");  // the link is relative
  EXPECT_TRUE(verify_checkpoint(root_ / "moved" / "checkpoints" / "best").empty());
  fs::rename(root_ / "moved", root_ / "run");
  store.set_best(4);
  EXPECT_EQ(store.prune(1, kNoDamage), 1);
  EXPECT_THAT(names(), ::testing::ElementsAre("best", "step-000000004"));
  store.clear_best();
  EXPECT_THAT(names(), ::testing::ElementsAre("step-000000004"));
}

TEST_F(CheckpointStoreTest, OnlyTheOwnLinkNamesTheBestCheckpoint) {
  CheckpointStore store(folder_);
  save(store, 1);
  EXPECT_THROW(store.set_best(2), Error);  // there is no such checkpoint
  for (const char* target : {"step-000000002", "../checkpoints/step-000000001", "/etc", "state"}) {
    fs::create_symlink(target, folder_ / "best");
    EXPECT_EQ(best_checkpoint(folder_), std::nullopt) << target;
    store.set_best(1);
    EXPECT_EQ(best_checkpoint(folder_)->step, 1);
    fs::remove(folder_ / "best");
  }
  fs::create_directory(folder_ / "best");  // such as a copy that a user has made
  put(folder_ / "best" / "mine", "mine");
  EXPECT_THROW(store.set_best(1), Error);
  store.clear_best();
  EXPECT_EQ(read_file(folder_ / "best" / "mine"), "mine");
}

TEST_F(CheckpointStoreTest, TooLittleSpaceIsReportedBeforeWritingWithBothFigures) {
  const CheckpointStore store(folder_);
  store.require_space(1);
  EXPECT_THAT(error_of([&] { store.require_space(uint64_t{1} << 62); }, ErrorKind::kDisk),
              testing::AllOf(HasSubstr(folder_.string()), HasSubstr("4611686018427387904 bytes"),
                             HasSubstr("are free")));
}

TEST_F(CheckpointStoreTest, AFolderThatCannotBeMadeIsADiskError) {
  put(root_ / "file", "x");
  EXPECT_THAT(
      error_of([&] { const CheckpointStore store(root_ / "file" / "checkpoints"); }, ErrorKind::kDisk),
      HasSubstr("file"));
}

TEST_F(CheckpointStoreTest, AFullDiskLeavesThePreviousCheckpoint) {
  const fs::path disk = root_ / "disk";
  fs::create_directories(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=64k") != 0)
    GTEST_SKIP() << "SKIPPED LOUDLY: a small tmpfs cannot be mounted here (needs root)";
  folder_ = disk / "checkpoints";
  {
    CheckpointStore store(folder_);
    save(store, 1);
    save(store, 2);
    EXPECT_THAT(error_of([&] { save(store, 3); }, ErrorKind::kDisk),
                testing::AllOf(HasSubstr(disk.string()), HasSubstr("No space left")));
    EXPECT_EQ(newest(), 2);
    EXPECT_THROW(store.require_space(30'000), Error);
    store.abandon();
    EXPECT_EQ(store.prune(1, kNoDamage), 1);
    save(store, 3);  // training has continued, and there is space again
    EXPECT_EQ(newest(), 3);
  }
  EXPECT_EQ(::umount(disk.c_str()), 0);
}

// Saves a checkpoint of `step` and prunes, in a traced child; checkpoint 1 exists. After an error it
// tries once more, as the trainer does. Writes to the pipe 'A' when the checkpoint is acknowledged, 'E'
// for an error of kind disk or data, and 'X' for any other error.
void save_in_child(const fs::path& folder, int report_fd, int64_t step = 2) {
  const auto say = [&](char c) { [[maybe_unused]] const ssize_t n = ::write(report_fd, &c, 1); };
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      CheckpointStore store(folder);
      save(store, step);
      say('A');
      store.prune(1, {});
      return;
    } catch (const Error& error) {
      say(error.kind() == ErrorKind::kDisk || error.kind() == ErrorKind::kData ? 'E' : 'X');
    }
  }
}

// The child is killed once at each system call of opening the store, saving and pruning.
TEST_F(CheckpointStoreTest, KillingAtEverySystemCallLosesNothing) {
  if (!can_trace()) GTEST_SKIP() << "SKIPPED LOUDLY: ptrace is not permitted here";
  int points = 0, acknowledged = 0;
  for (int n = 1;; ++n, ++points) {
    fs::remove_all(folder_);
    {
      CheckpointStore store(folder_);
      save(store, 1);
    }
    const TracedChild child = run_traced([&](int fd) { save_in_child(folder_, fd); }, Fault{.kill_at = n});
    ASSERT_EQ(child.report.find_first_of("EX"), child.report.npos);
    const bool is_acknowledged = child.report == "A";
    acknowledged += is_acknowledged;
    const int64_t found = newest();
    ASSERT_TRUE(found == 2 || (found == 1 && !is_acknowledged))
        << "call " << n << " of " << child.calls.size();
    CheckpointStore next(folder_);  // the next start cleans up and can save
    for (const std::string& name : names()) ASSERT_THAT(name, ::testing::StartsWith("step-"));
    save(next, 3);
    ASSERT_EQ(newest(), 3);
    if (child.has_finished) break;
  }
  RecordProperty("kill_points", points);
  EXPECT_GT(points, 40);
  EXPECT_GT(acknowledged, 5);
  std::printf("killed at %d system calls, %d of them after the acknowledgement\n", points, acknowledged);
}

// The best checkpoint is 1. The child saves 2, makes it the best one and prunes.
TEST_F(CheckpointStoreTest, KillingAtEverySystemCallLeavesABestCheckpoint) {
  if (!can_trace()) GTEST_SKIP() << "SKIPPED LOUDLY: ptrace is not permitted here";
  const auto better_in_child = [&](int report_fd) {
    CheckpointStore store(folder_);
    save(store, 2);
    store.set_best(2);
    [[maybe_unused]] const ssize_t n = ::write(report_fd, "A", 1);
    store.prune(1, {});
  };
  int with_old = 0, with_new = 0;
  for (int n = 1;; ++n) {
    fs::remove_all(folder_);
    {
      CheckpointStore store(folder_);
      save(store, 1);
      store.set_best(1);
    }
    const TracedChild child = run_traced(better_in_child, Fault{.kill_at = n});
    const std::optional<Checkpoint> best = best_checkpoint(folder_);
    ASSERT_TRUE(best) << "call " << n << " of " << child.calls.size();
    ASSERT_TRUE(best->step == 2 || (best->step == 1 && child.report.empty())) << "call " << n;
    ASSERT_TRUE(verify_checkpoint(folder_ / "best").empty()) << "call " << n;
    ++(best->step == 1 ? with_old : with_new);
    CheckpointStore next(folder_);  // the next start cleans up
    ASSERT_THAT(names(), ::testing::Each(::testing::AnyOf("best", ::testing::StartsWith("step-"))));
    if (child.has_finished) break;
  }
  EXPECT_GT(with_old, 20);
  EXPECT_GT(with_new, 5);
}

// While a checkpoint is replaced by one of the same step, a good one exists at every moment.
TEST_F(CheckpointStoreTest, KillingAReplacementAtEverySystemCallLosesNothing) {
  if (!can_trace()) GTEST_SKIP() << "SKIPPED LOUDLY: ptrace is not permitted here";
  for (int n = 1;; ++n) {
    fs::remove_all(folder_);
    {
      CheckpointStore store(folder_);
      save(store, 1);
    }
    const TracedChild child = run_traced([&](int fd) { save_in_child(folder_, fd, 1); }, Fault{.kill_at = n});
    ASSERT_EQ(child.report.find_first_of("EX"), child.report.npos);
    ASSERT_EQ(newest(), 1) << "call " << n << " of " << child.calls.size();
    CheckpointStore next(folder_);
    ASSERT_THAT(names(), ::testing::ElementsAre("step-000000001"));
    if (!child.has_finished) continue;
    EXPECT_GT(n, 40);
    break;
  }
}

// Each system call that can fail does so once, with each error that a disk can return. The store must
// report an error of kind disk or data, and the retry must succeed.
TEST_F(CheckpointStoreTest, FailingEverySystemCallLosesNothing) {
  if (!can_trace() || !can_inject_errors())
    GTEST_SKIP() << "SKIPPED LOUDLY: system calls cannot be made to fail here (ptrace on x86-64 is needed)";
  int points = 0, errors = 0;
  for (const int error : {ENOSPC, EIO, EDQUOT}) {
    for (int n = 1;; ++n, ++points) {
      fs::remove_all(folder_);
      {
        CheckpointStore store(folder_);
        save(store, 1);
      }
      const TracedChild child =
          run_traced([&](int fd) { save_in_child(folder_, fd); }, Fault{.fail_at = n, .error = error});
      ASSERT_TRUE(child.has_finished);
      ASSERT_EQ(child.report.find('X'), child.report.npos) << "call " << n;
      ASSERT_NE(child.report.find('A'), child.report.npos) << "call " << n << ": the retry failed";
      errors += child.report[0] == 'E';
      ASSERT_EQ(newest(), 2) << "call " << n;
      if (!child.has_injected) break;
    }
  }
  EXPECT_GT(points, 60);
  EXPECT_GT(errors, 30);
  std::printf("failed %d system calls, %d of them ended in an error and a retry\n", points, errors);
}

// A power cut may undo everything that was not flushed. Hence all files must be flushed before the
// rename, and the rename before the acknowledgement.
TEST_F(CheckpointStoreTest, FilesAreFlushedBeforeTheRenameAndTheRenameBeforeTheAcknowledgement) {
  if (!can_trace()) GTEST_SKIP() << "SKIPPED LOUDLY: ptrace is not permitted here";
  const TracedChild child = run_traced([&](int fd) { save_in_child(folder_, fd); }, Fault{});
  ASSERT_EQ(child.report, "A");
  std::string order;  // f: fsync, r: rename, w: write
  for (const long call : child.calls) order += call_letter(call);
  const size_t rename = order.find('r');
  ASSERT_NE(rename, order.npos);
  EXPECT_EQ(order.find('r', rename + 1), order.npos);
  const std::string before = order.substr(0, rename), after = order.substr(rename);
  EXPECT_EQ(before.back(), 'f') << order;  // the folder is flushed after its last file
  EXPECT_GT(before.size() - 1 - before.rfind('w'), 3u)
      << "two files and the folder are flushed after the last write";
  EXPECT_EQ(std::ranges::count(before, 'f'), 6) << order;  // close: 3 files; commit: 2 files and the folder
  EXPECT_EQ(after.substr(0, 3), "rfw") << order;           // rename, flush of the parent, acknowledgement
}

}  // namespace
}  // namespace ingot
