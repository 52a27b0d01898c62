// The arguments of `ingot train`, which `ingot launch` reads too.
#pragma once

#include <string>
#include <vector>

#include "ingot/config/config.h"

namespace ingot {

class Command;

struct TrainArguments {
  std::string source;  // preset or file
  std::vector<std::string> data, overrides;
  std::string out;
  std::string init;  // train.init_from
  bool is_resume = false;
  bool is_resume_anyway = false;
  bool prints_config = false, prints_program = false;
  bool is_quiet = false;               // print warnings and errors only
  bool is_json = false;                // print run.json at the end
  std::vector<std::string> line = {};  // the command as typed

  // Sorts what the parser could not: a preset behind --data's words. Throws a kUsage error for arguments that
  // do not fit together.
  void complete();
};

// Adds the options of `ingot train`. The arguments must outlive the parsing.
void add_train_options(Command& command, TrainArguments& arguments);

// Returns the run's configuration. notes: sentences for the user about values that were adapted.
RunConfig configure_training(const TrainArguments& arguments, std::vector<std::string>& notes);

// Returns "runs/<preset>-<date>-<time>", for a run without --out.
std::string default_run_folder(const TrainArguments& arguments, const RunConfig& config);

}  // namespace ingot
