#include "ingot/sweep/comparison.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "ingot/console/console.h"
#include "ingot/core/error.h"

namespace ingot {
namespace {

constexpr double kTail = 0.2;  // part of the shared tokens whose training losses are compared
constexpr size_t kBlocks = 10;
constexpr size_t kLongestName = 60;

// The mean losses in `blocks` equal parts of the tokens (begin, end]; nullopt if a part has none.
std::optional<std::vector<double>> block_means(const MetricsCurve& curve, double begin, double end,
                                               size_t blocks) {
  std::vector<double> sums(blocks, 0);
  std::vector<int> counts(blocks, 0);
  for (size_t i = 0; i < curve.x.size(); ++i) {
    if (curve.x[i] <= begin || curve.x[i] > end) continue;
    const double place = (curve.x[i] - begin) / (end - begin) * static_cast<double>(blocks);
    const size_t block = std::min(blocks, static_cast<size_t>(std::max(1.0, std::ceil(place)))) - 1;
    sums[block] += curve.y[i];
    ++counts[block];
  }
  for (size_t b = 0; b < blocks; ++b) {
    if (counts[b] == 0) return std::nullopt;
    sums[b] /= counts[b];
  }
  return sums;
}

double last_tokens(const MetricsCurve& curve) { return curve.x.empty() ? 0 : curve.x.back(); }

// The mean training loss over the last part of the first `end` tokens.
std::optional<double> tail_mean(const MetricsCurve& curve, double end) {
  const auto mean = block_means(curve, end * (1 - kTail), end, 1);
  return mean ? std::optional((*mean)[0]) : std::nullopt;
}

// Runs with equal settings and data form a group. A run whose seed the group has already is a repetition, and
// begins another group.
std::vector<RunGroup> make_groups(const std::vector<ComparedRun>& runs) {
  std::vector<RunGroup> groups;
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto is_same = [&](const RunGroup& group) {
      const ComparedRun& first = runs[group.runs[0]];
      return first.settings == runs[i].settings && first.val_hash == runs[i].val_hash &&
             std::ranges::none_of(group.runs, [&](size_t r) { return runs[r].seed == runs[i].seed; });
    };
    const auto found = std::ranges::find_if(groups, is_same);
    if (found != groups.end())
      found->runs.push_back(i);
    else
      groups.push_back({.name = "", .runs = {i}});
  }
  return groups;
}

std::vector<SettingDifference> find_settings(const Comparison& comparison) {
  std::set<std::string> keys;
  for (const ComparedRun& run : comparison.runs)
    for (const auto& [key, value] : run.settings) keys.insert(key);
  std::vector<SettingDifference> differences;
  for (const std::string& key : keys) {
    SettingDifference difference{.key = key, .values = {}};
    for (const RunGroup& group : comparison.groups) {
      const auto& settings = comparison.runs[group.runs[0]].settings;
      const auto found = settings.find(key);
      difference.values.push_back(found == settings.end() ? "" : found->second);
    }
    const auto& values = difference.values;
    if (std::ranges::any_of(values, [&](const std::string& v) { return v != values[0]; }))
      differences.push_back(std::move(difference));
  }
  return differences;
}

void name_groups(Comparison& comparison) {
  std::set<std::string> names;
  for (size_t g = 0; g < comparison.groups.size(); ++g) {
    std::string name;
    for (const SettingDifference& setting : comparison.settings)
      name += fmt::format("{}{}={}", name.empty() ? "" : " ", setting.key, setting.values[g]);
    if (name.empty() || name.size() > kLongestName || !names.insert(name).second)
      name = comparison.runs[comparison.groups[g].runs[0]].name;
    comparison.groups[g].name = name;
  }
}

// Values of one quantity by seed, of the first group and of another.
struct Samples {
  std::vector<double> paired_a, paired_b;  // both groups have these seeds
  std::vector<double> all_a, all_b;
};

template <class Value>
Samples gather(const Comparison& comparison, size_t group, const Value& value) {
  Samples samples;
  for (const size_t b : comparison.groups[group].runs)
    if (const auto y = value(comparison.runs[b])) samples.all_b.push_back(*y);
  for (const size_t a : comparison.groups[0].runs) {
    const auto x = value(comparison.runs[a]);
    if (!x) continue;
    samples.all_a.push_back(*x);
    for (const size_t b : comparison.groups[group].runs) {
      const auto y = value(comparison.runs[b]);
      if (!y || comparison.runs[a].seed != comparison.runs[b].seed) continue;
      samples.paired_a.push_back(*x);
      samples.paired_b.push_back(*y);
    }
  }
  return samples;
}

// Welch's interval for the difference of two means of independent samples.
MeanInterval unpaired_difference(const std::vector<double>& a, const std::vector<double>& b) {
  const auto mean_and_variance = [](const std::vector<double>& v) {
    double mean = 0, sum = 0;
    for (const double x : v) mean += x / static_cast<double>(v.size());
    for (const double x : v) sum += (x - mean) * (x - mean);
    const auto n = static_cast<double>(v.size());
    return std::pair(mean, sum / (n - 1) / n);  // variance of the mean
  };
  const auto [mean_a, var_a] = mean_and_variance(a);
  const auto [mean_b, var_b] = mean_and_variance(b);
  const double var = var_a + var_b, mean = mean_b - mean_a;
  const auto freedom_a = static_cast<double>(a.size() - 1), freedom_b = static_cast<double>(b.size() - 1);
  const double freedom = var > 0 ? var * var / (var_a * var_a / freedom_a + var_b * var_b / freedom_b) : 1;
  const double half = t_975(std::max(1, static_cast<int>(freedom))) * std::sqrt(var);
  return {mean, Interval{mean - half, mean + half}};
}

std::optional<LossDifference> difference_over_seeds(const Samples& samples, size_t group,
                                                    const std::string& quantity) {
  LossDifference difference{.group = group, .quantity = quantity, .value = {}, .method = ""};
  if (samples.paired_a.size() >= 2) {
    difference.value = paired_difference(samples.paired_b, samples.paired_a);
    difference.method = fmt::format("paired over {} seeds", samples.paired_a.size());
  } else if (samples.all_a.size() >= 2 && samples.all_b.size() >= 2) {
    difference.value = unpaired_difference(samples.all_a, samples.all_b);
    difference.method = fmt::format("{} seeds against {} others", samples.all_b.size(), samples.all_a.size());
  } else if (!samples.all_a.empty() && !samples.all_b.empty()) {
    const bool is_paired = !samples.paired_a.empty();
    difference.value.mean =
        is_paired ? samples.paired_b[0] - samples.paired_a[0] : samples.all_b[0] - samples.all_a[0];
    difference.method = "one seed, which gives no interval";
  } else {
    return std::nullopt;
  }
  return difference;
}

// A run of the first group and one of the other: of the same seed if they share one.
std::pair<const ComparedRun*, const ComparedRun*> pair_of(const Comparison& comparison, size_t group) {
  const std::vector<size_t>&first = comparison.groups[0].runs, &other = comparison.groups[group].runs;
  for (const size_t a : first)
    for (const size_t b : other)
      if (comparison.runs[a].seed == comparison.runs[b].seed)
        return {&comparison.runs[a], &comparison.runs[b]};
  return {&comparison.runs[first[0]], &comparison.runs[other[0]]};
}

// Over the seeds if there are enough, else over the blocks of one run and one other.
std::optional<LossDifference> train_difference(const Comparison& comparison, size_t group) {
  double end = std::numeric_limits<double>::infinity();  // tokens that all of their runs have seen
  for (const size_t g : {size_t{0}, group})
    for (const size_t r : comparison.groups[g].runs)
      end = std::min(end, last_tokens(comparison.runs[r].train));
  const Samples samples =
      gather(comparison, group, [&](const ComparedRun& run) { return tail_mean(run.train, end); });
  auto difference = difference_over_seeds(samples, group, "train_loss");
  if (!difference) return std::nullopt;
  if (!difference->value.interval) {
    const auto [a, b] = pair_of(comparison, group);
    if (const auto value = curve_difference(a->train, b->train)) {
      difference->value = *value;
      difference->method = "one run each, in blocks: noise between batches, not between seeds";
    }
  }
  difference->method += fmt::format("; the last fifth of {} tokens", format_count(end));
  return difference;
}

// The differences of what has names. Of other tokens only accuracies are compared.
void add_figures(Comparison& comparison, size_t group, bool has_same_tokens) {
  std::set<std::string> names;
  for (const size_t run : comparison.groups[0].runs)
    for (const auto& [name, value] : comparison.runs[run].figures) names.insert(name);
  for (const std::string& name : names) {
    if (!has_same_tokens && !name.ends_with(" acc")) continue;
    const auto value = [&](const ComparedRun& run) {
      const auto found = run.figures.find(name);
      return found == run.figures.end() ? std::nullopt : std::optional(found->second);
    };
    if (auto difference = difference_over_seeds(gather(comparison, group, value), group, name))
      comparison.differences.push_back(*std::move(difference));
  }
}

void find_differences(Comparison& comparison) {
  const ComparedRun& first = comparison.runs[comparison.groups[0].runs[0]];
  for (size_t g = 1; g < comparison.groups.size(); ++g) {
    const ComparedRun& other = comparison.runs[comparison.groups[g].runs[0]];
    const bool has_same_tokens = first.tokenizer_hash == other.tokenizer_hash;
    const bool has_same_text = !has_same_tokens || first.val_hash == other.val_hash;
    std::optional<LossDifference> validation;
    if (!has_same_tokens) {
      comparison.remarks.push_back(
          fmt::format("{} has another tokenizer than {}: bits per byte are compared, if the texts are the "
                      "same; losses per token are not",
                      comparison.groups[g].name, comparison.groups[0].name));
      validation = difference_over_seeds(
          gather(comparison, g, [](const ComparedRun& run) { return run.val_bits_per_byte; }), g,
          "val_bits_per_byte");
    } else if (has_same_text) {
      validation = difference_over_seeds(
          gather(comparison, g, [](const ComparedRun& run) { return run.val_loss; }), g, "val_loss");
    } else {
      comparison.remarks.push_back(
          fmt::format("{} was validated on another text than {}: validation losses are not compared",
                      comparison.groups[g].name, comparison.groups[0].name));
    }
    if (validation) comparison.differences.push_back(*std::move(validation));
    add_figures(comparison, g, has_same_tokens);
    if (!has_same_tokens) continue;
    if (auto difference = train_difference(comparison, g))
      comparison.differences.push_back(*std::move(difference));
  }
}

void add_remarks(Comparison& comparison) {
  for (const ComparedRun& run : comparison.runs)
    if (run.status != "completed")
      comparison.remarks.push_back(fmt::format("{} is {} after step {}: its figures are those of that step",
                                               run.name, run.status, run.steps));
  std::set<std::string> commits;
  for (const ComparedRun& run : comparison.runs)
    if (!run.commit.empty()) commits.insert(run.commit);
  if (commits.size() > 1)
    comparison.remarks.emplace_back("the runs were trained by different versions of the program");
  std::set<int64_t> tokens;
  for (const ComparedRun& run : comparison.runs) tokens.insert(run.tokens);
  if (tokens.size() > 1)
    comparison.remarks.emplace_back(
        "the runs have trained on different numbers of tokens; training losses are compared "
        "where both have trained, validation losses at the end of each");
}

}  // namespace

size_t Comparison::group_of(size_t run) const {
  const auto has_run = [run](const RunGroup& group) {
    return std::ranges::find(group.runs, run) != group.runs.end();
  };
  return static_cast<size_t>(std::ranges::find_if(groups, has_run) - groups.begin());
}

std::string LossDifference::verdict() const {
  if (!value.interval) return "";
  return value.interval->contains(0) ? "not told apart" : value.mean < 0 ? "lower" : "higher";
}

std::optional<MeanInterval> curve_difference(const MetricsCurve& first, const MetricsCurve& second) {
  const double end = std::min(last_tokens(first), last_tokens(second));
  for (size_t blocks = kBlocks; blocks >= 2; --blocks) {
    const auto a = block_means(first, end * (1 - kTail), end, blocks);
    const auto b = block_means(second, end * (1 - kTail), end, blocks);
    if (a && b) return paired_difference(*b, *a);
  }
  return std::nullopt;
}

Comparison compare_runs(std::vector<ComparedRun> runs) {
  INGOT_CHECK(!runs.empty(), "compare_runs: there is no run");
  Comparison comparison;
  comparison.runs = std::move(runs);
  comparison.groups = make_groups(comparison.runs);
  comparison.settings = find_settings(comparison);
  name_groups(comparison);
  find_differences(comparison);
  add_remarks(comparison);
  return comparison;
}

}  // namespace ingot
