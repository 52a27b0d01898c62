#include "apps/command_line.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "apps/unknown_words.h"
#include "ingot/config/config_units.h"
#include "ingot/config/nearest.h"
#include "ingot/core/error.h"
#include "ingot/core/visible_text.h"

namespace ingot {
namespace {

constexpr const char* kNotEmpty = "not empty";  // the name of a validator

}  // namespace

Option* Option::required() {
  option_->required();
  return this;
}

Option* Option::type_name(const std::string& name) {
  option_->type_name(name);
  return this;
}

Option* Option::default_str(const std::string& text) {
  option_->default_str(text);
  return this;
}

Option* Option::capture_default_str() {
  option_->capture_default_str();
  return this;
}

Option* Option::repeated() {
  option_->expected(1)->take_all();
  return this;
}

Option* Option::may_be_empty() {
  option_->get_validator(kNotEmpty)->active(false);
  return this;
}

Option* Option::in_range(int low, int high) {
  option_->check(CLI::Range(low, high));
  return this;
}

Option* Option::count(int64_t low, int64_t high) {
  const auto read = [low, high](std::string& text) -> std::string {
    const std::optional<int64_t> count = parse_count(text);
    if (!count || *count < low || *count > high) {
      const std::string range = high == std::numeric_limits<int64_t>::max()
                                    ? fmt::format("at least {}", low)
                                    : fmt::format("in {} .. {}", low, high);
      return fmt::format("must be a whole number {} like 4096, 4k or 4Ki, got {}{}", range, text,
                         count ? "" : did_you_mean(nearest_counts(text)));
    }
    text = std::to_string(*count);
    return "";
  };
  option_->transform(CLI::Validator(read, "", "count"))->type_name("COUNT");
  return this;
}

Command* Command::add_subcommand(const std::string& name, const std::string& description) {
  return &subcommands_.emplace_back(app_->add_subcommand(name, description));
}

template <typename T>
Option* Command::add_option(const std::string& name, T& target, const std::string& description) {
  CLI::Option* option = app_->add_option(name, target, description);
  option->check(CLI::Validator(
      [](const std::string& text) { return std::string(text.empty() ? "must not be empty" : ""); }, "",
      kNotEmpty));
  return &options_.emplace_back(option);
}
template Option* Command::add_option(const std::string&, std::string&, const std::string&);
template Option* Command::add_option(const std::string&, std::vector<std::string>&, const std::string&);
template Option* Command::add_option(const std::string&, int&, const std::string&);
template Option* Command::add_option(const std::string&, int64_t&, const std::string&);
template Option* Command::add_option(const std::string&, uint64_t&, const std::string&);
template Option* Command::add_option(const std::string&, float&, const std::string&);
template Option* Command::add_option(const std::string&, double&, const std::string&);

Option* Command::add_flag(const std::string& name, bool& target, const std::string& description) {
  return &options_.emplace_back(app_->add_flag(name, target, description));
}

void Command::require_subcommand() { app_->require_subcommand(1); }
void Command::footer(const std::function<std::string()>& text) { app_->footer(text); }
void Command::callback(const std::function<void()>& run) { app_->callback(run); }

CommandLine::CommandLine(const std::string& program, const std::string& description,
                         const std::string& version)
    : app_(std::make_unique<CLI::App>(description, program)), root_(app_.get()) {
  app_->set_version_flag("--version", version);
  app_->footer("ingot help COMMAND shows the options of a command.");
  root_.require_subcommand();
}

CommandLine::~CommandLine() = default;

CommandInfo CommandLine::tree() const { return command_tree(*app_); }

int CommandLine::run(int argc, char** argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (take_help(*app_, words))
    if (const std::string message = unknown_word(*app_, words); !message.empty())
      fail(ErrorKind::kUsage, "{}", message);
  try {
    std::vector<std::string> reversed(words.rbegin(), words.rend());  // CLI11 expects this order
    app_->parse(reversed);
    return 0;
  } catch (const Exit& end) {
    return end.code;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app_->exit(error);  // --help, --version
    // For a misspelt command CLI11 only says that one is required, and for an option only that it was not
    // expected.
    if (const std::string message = unknown_word(*app_, words); !message.empty())
      fail(ErrorKind::kUsage, "{}", message);
    fail(ErrorKind::kUsage, "{}\nTry --help.", missing_or_extra(*app_, words, error.what()));
  }
}

}  // namespace ingot
