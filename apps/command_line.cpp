#include "apps/command_line.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <vector>

#include "ingot/core/error.h"
#include "ingot/train/nearest.h"

namespace ingot {

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

Option* Option::in_range(int low, int high) {
  option_->check(CLI::Range(low, high));
  return this;
}

Command* Command::add_subcommand(const std::string& name, const std::string& description) {
  return &subcommands_.emplace_back(app_->add_subcommand(name, description));
}

template <typename T>
Option* Command::add_option(const std::string& name, T& target, const std::string& description) {
  return &options_.emplace_back(app_->add_option(name, target, description));
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
  app_->failure_message([program](const CLI::App*, const CLI::Error& error) {
    return fmt::format("{}: {}\nTry --help.\n", program, error.what());
  });
  root_.require_subcommand();
}

CommandLine::~CommandLine() = default;

// CLI11 says of a misspelt command only that one is required.
void CommandLine::check_command(const std::string& given) const {
  std::vector<std::string> names;
  for (const CLI::App* command : app_->get_subcommands({})) names.push_back(command->get_name());
  if (given.starts_with("-") || std::ranges::find(names, given) != names.end()) return;
  fail(ErrorKind::kUsage, "{}: unknown command{}; the commands are {}", given,
       did_you_mean(nearest_names(given, names)), list_names(names));
}

int CommandLine::run(int argc, char** argv) {
  if (argc > 1) check_command(argv[1]);
  try {
    app_->parse(argc, argv);
    return 0;
  } catch (const Exit& end) {
    return end.code;
  } catch (const CLI::ParseError& error) {
    return app_->exit(error) == 0 ? 0 : exit_code(ErrorKind::kUsage);
  }
}

}  // namespace ingot
