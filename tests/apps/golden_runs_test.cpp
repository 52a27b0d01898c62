// The run folders of every release (tools/make_golden_run.py) load, resume and export with this program.
#include <algorithm>
#include <map>
#include <vector>

#include "ingot/formats/metrics_log.h"
#include "tests/regress/attack_fixture.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

// A resume repeats steps 5 to 8 of the run itself. On the machine that made the runs the losses have equal
// bits. Others sum in another order: 2^-11 is one rounding of f16, and 1e-5 about 100 of f32. Without the
// moments of the optimizer the losses differ by 0.007 to 0.04.
constexpr double kF16Tolerance = 1.0 / 2048, kF32Tolerance = 1e-5;

std::vector<fs::path> golden_runs() {
  std::vector<fs::path> runs;
  for (const auto& release : fs::directory_iterator(INGOT_TEST_DATA "/runs"))
    for (const auto& run : fs::directory_iterator(release))
      if (run.is_directory()) runs.push_back(run.path());
  std::ranges::sort(runs);
  return runs;
}

std::map<int64_t, double> numbers(const fs::path& run, const char* key) {
  std::map<int64_t, double> by_step;
  for (const MetricsRow& row : read_metrics(run / "metrics.jsonl"))
    if (const auto value = row.number(key)) by_step[static_cast<int64_t>(*row.number("step"))] = *value;
  return by_step;
}

class GoldenRuns : public AttackTest, public testing::WithParamInterface<fs::path> {
 protected:
  GoldenRuns() {
    fs::copy(GetParam(), folder_ / "run", fs::copy_options::recursive);
    fs::copy(GetParam().parent_path() / "text.txt", folder_ / "text.txt");
  }
};

TEST_P(GoldenRuns, Resume) {
  const Outcome outcome = bash("$ingot train --resume --out run");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("resumed run/checkpoints/step-000000004 at step 4"));
  EXPECT_THAT(outcome.output, Not(HasSubstr("warning")));
  const bool is_f16 = read_file(folder_ / "run/config.toml").find("compute = \"f16\"") != std::string::npos;
  for (const char* key : {"loss", "val_loss", "lr"}) {
    const auto before = numbers(GetParam(), key), now = numbers(folder_ / "run", key);
    ASSERT_EQ(before.size(), now.size()) << key;
    for (const auto& [step, value] : before)
      EXPECT_NEAR(now.at(step), value, value * (is_f16 ? kF16Tolerance : kF32Tolerance)) << key << step;
  }
}

TEST_P(GoldenRuns, LoadAndExport) {
  const Outcome outcome = bash(R"sh(set -e
$ingot status run
$ingot generate run --prompt "2 times" --tokens 4
$ingot export run --hf hf
grep -q 'tokenizer = "char"' run/config.toml || $ingot export run --gguf run.gguf
without_name() { sed 's/ | [^|]*$//'; }
$ingot eval run --data text.txt | without_name >loss
grep -q 'bits/byte' loss
$ingot eval hf --data text.txt | without_name | diff loss -
)sh");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(All, GoldenRuns, testing::ValuesIn(golden_runs()), [](const auto& info) {
  std::string name = info.param.parent_path().filename().string() + "_" + info.param.filename().string();
  std::ranges::replace(name, '.', '_');  // googletest allows no dots
  return name;
});

}  // namespace
}  // namespace ingot
