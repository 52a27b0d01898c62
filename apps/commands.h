// The subcommands of `ingot`. Each adds itself, its options and a callback that runs when it is parsed:
// parse, build, run. Callbacks throw ingot::Error.
#pragma once

#include <string>
#include <vector>

namespace ingot {

class Command;

// "note: ..." on standard error, where it mixes with no result.
void print_notes(const std::vector<std::string>& notes);

void add_train_command(Command& app, const std::vector<std::string>& line);  // as it was typed
void add_eval_command(Command& app);
void add_generate_command(Command& app);
void add_tokenizer_command(Command& app);
void add_data_command(Command& app);
void add_bench_command(Command& app);
void add_schedule_command(Command& app);
void add_doctor_command(Command& app);
void add_status_command(Command& app);
void add_precision_bench(Command& bench);  // of `ingot bench`

}  // namespace ingot
