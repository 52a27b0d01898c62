// Defines the command line: commands, their subcommands and options. The classes wrap the part of CLI11 that
// the commands need. Only command_line.cpp includes CLI11 itself, because it consists of templates and inline
// functions, and a file that includes it takes ten times as long to compile.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <list>
#include <memory>
#include <string>

#include "apps/help/command_tree.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace ingot {

class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option* required();
  Option* type_name(const std::string& name);  // in the help, instead of TEXT
  Option* default_str(const std::string& text);
  Option* capture_default_str();  // the help shows the target's current value
  Option* repeated();             // one value per occurrence; all are kept
  Option* may_be_empty();
  Option* in_range(int low, int high);  // other values are a usage error
  // Accepts a whole number as in the configuration (4096, 4k, 1Ki, 0.5M) from low to high; anything else is a
  // usage error.
  Option* count(int64_t low, int64_t high = std::numeric_limits<int64_t>::max());

 private:
  CLI::Option* option_;
};

// Pointers to subcommands and options are valid as long as their command.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  Command* add_subcommand(const std::string& name, const std::string& description);
  // Adds an option, or a positional argument if the name has no dashes. An empty value is refused unless the
  // option may_be_empty(). T is std::string, std::vector<std::string>, int, int64_t, uint64_t, float or
  // double. REQUIRES: the target outlives the parsing.
  template <typename T>
  Option* add_option(const std::string& name, T& target, const std::string& description);
  Option* add_flag(const std::string& name, bool& target, const std::string& description);
  void require_subcommand();
  void footer(const std::function<std::string()>& text);  // shown below the help
  void callback(const std::function<void()>& run);        // called after parsing, if the command was given

 private:
  CLI::App* app_;
  std::list<Command> subcommands_;
  std::list<Option> options_;
};

// Thrown by a callback to end the program with this exit code and no message.
struct Exit {
  int code;
};

// The complete command line of a program.
class CommandLine {
 public:
  CommandLine(const std::string& program, const std::string& description, const std::string& version);
  ~CommandLine();
  Command& root() { return root_; }
  CommandInfo tree() const;  // describes the commands that were added

  // Parses the line, calls the callbacks of the given commands and returns the exit code. Prints the faults
  // of the line on stderr. Throws a kUsage error for an unknown command or option, which names the nearest
  // known one; errors of callbacks propagate. `help COMMAND` means `COMMAND --help`.
  int run(int argc, char** argv);

 private:
  std::unique_ptr<CLI::App> app_;
  Command root_;
};

}  // namespace ingot
