#include "ingot/sweep/sweep_spec.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "ingot/config/config_toml.h"
#include "ingot/core/error.h"
#include "ingot/run/start_model.h"

namespace ingot {
namespace {

constexpr size_t kMaxRuns = 10000;

// Keys that the sweep sets by itself, and what the user should do instead.
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kOwnKeys = {
    {{"train.seed", "--seeds N takes several"},
     {"train.stop_at", "vary train.steps, or stop hopeless runs with --halving"},
     {"train.threads",
      "--set train.threads=N is for all runs; the threads change only a result's rounding"}}};

ConfigBuilder builder_of(const SweepSpec& spec) {
  ConfigBuilder builder;
  builder.add_source(spec.source);
  if (!spec.data.empty()) builder.add_texts("data.train", spec.data, "--data");
  for (const std::string& assignment : spec.overrides) builder.add_override(assignment);
  return builder;
}

bool is_plain(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) ||
         std::string_view("._-+=,").find(c) != std::string_view::npos;
}

// FNV-1a; it tells names apart that are cut or have had characters replaced.
uint64_t hash_of(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// A name for a folder: other characters become '-', and a long name is cut; both then end in a hash of the
// text.
std::string folder_name(const std::string& text) {
  constexpr size_t kLongest = 100;
  std::string name = text;
  std::ranges::replace_if(
      name, [](char c) { return !is_plain(c); }, '-');
  if (name == text && name.size() <= kLongest) return name;
  return fmt::format("{}-{:016x}", name.substr(0, kLongest), hash_of(text));
}

void check_keys(const SweepSpec& spec) {
  for (size_t i = 0; i < spec.vary.size(); ++i) {
    const std::string& key = spec.vary[i].key;
    for (const auto& [own, advice] : kOwnKeys)
      if (key == own) fail(ErrorKind::kUsage, "--vary {}: the sweep sets this key itself; {}", key, advice);
    for (size_t k = 0; k < i; ++k)
      if (spec.vary[k].key == key)
        fail(ErrorKind::kUsage, "--vary {} is given twice; put all values into one: --vary {}=A,B,C", key,
             key);
  }
}

}  // namespace

RunConfig base_config(const SweepSpec& spec) {
  ConfigBuilder builder = builder_of(spec);
  complete_from_start(builder);
  return builder.build();
}

std::string setting_text(const SweepSpec& spec, const SweepRun& run) {
  std::string text;
  for (size_t i = 0; i < spec.vary.size(); ++i)
    text += fmt::format("{}{}={}", i == 0 ? "" : " ", spec.vary[i].key, run.values[i]);
  return text.empty() ? "base" : text;
}

std::vector<SweepRun> sweep_runs(const SweepSpec& spec) {
  check_keys(spec);
  size_t settings = 1;
  for (const Vary& vary : spec.vary) {
    settings *= vary.values.size();
    if (settings * static_cast<size_t>(spec.seeds) > kMaxRuns)
      fail(ErrorKind::kUsage, "the sweep has more than {} runs; vary fewer keys or values", kMaxRuns);
  }
  std::vector<SweepRun> runs;
  for (int64_t seed = 0; seed < spec.seeds; ++seed)
    for (size_t setting = 0; setting < settings; ++setting) {
      SweepRun run;
      run.setting = setting;
      run.values.resize(spec.vary.size());
      size_t rest = setting;
      for (size_t i = spec.vary.size(); i-- > 0;) {
        run.values[i] = spec.vary[i].values[rest % spec.vary[i].values.size()];
        rest /= spec.vary[i].values.size();
      }
      ConfigBuilder builder = builder_of(spec);
      for (size_t i = 0; i < spec.vary.size(); ++i)
        builder.add_override(spec.vary[i].key + "=" + run.values[i], "--vary");
      builder.config().train.seed += static_cast<uint64_t>(seed);
      try {
        complete_from_start(builder);
        run.config = builder.build();
      } catch (const Error& error) {
        fail(error.kind(), "{}: {}", setting_text(spec, run), error.what());
      }
      run.seed = run.config.train.seed;
      std::string text = setting_text(spec, run);
      std::ranges::replace(text, ' ', ',');
      run.name = folder_name(fmt::format("{},seed={}", text, run.seed));
      runs.push_back(std::move(run));
    }
  return runs;
}

std::vector<std::string> train_arguments(const SweepSpec& spec, const SweepRun& run,
                                         const std::string& folder, int threads, int64_t stop_at,
                                         bool is_resume) {
  std::vector<std::string> arguments = {"train"};
  const auto set = [&](const std::string& assignment) {
    arguments.emplace_back("--set");
    arguments.push_back(assignment);
  };
  if (!is_resume) {
    arguments.push_back(spec.source);
    if (!spec.data.empty()) arguments.emplace_back("--data");
    arguments.insert(arguments.end(), spec.data.begin(), spec.data.end());
    set("checkpoint.keep=1");
    set("checkpoint.best=false");
    for (const std::string& assignment : spec.overrides) set(assignment);
    for (size_t i = 0; i < spec.vary.size(); ++i) set(spec.vary[i].key + "=" + run.values[i]);
    set(fmt::format("train.seed={}", run.seed));
  }
  set(fmt::format("train.threads={}", threads));
  if (stop_at > 0) set(fmt::format("train.stop_at={}", stop_at));
  if (is_resume) arguments.emplace_back("--resume");
  arguments.emplace_back("--out");
  arguments.push_back(folder);
  return arguments;
}

std::vector<std::string> sweep_words(const SweepSpec& spec) {
  std::vector<std::string> words = {"ingot", "sweep", spec.source};
  if (!spec.data.empty()) words.emplace_back("--data");
  words.insert(words.end(), spec.data.begin(), spec.data.end());
  for (const std::string& assignment : spec.overrides) words.insert(words.end(), {"--set", assignment});
  return words;
}

std::string shell_line(const std::vector<std::string>& arguments) {
  std::string line;
  for (const std::string& argument : arguments) {
    const bool is_safe =
        !argument.empty() && std::ranges::all_of(argument, [](char c) { return is_plain(c) || c == '/'; });
    std::string quoted;
    for (const char c : argument) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += (line.empty() ? "" : " ") + (is_safe ? argument : "'" + quoted + "'");
  }
  return line;
}

}  // namespace ingot
