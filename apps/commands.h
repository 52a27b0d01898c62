// The subcommands of `ingot`. Each function adds a command, its options and a callback, which runs after
// parsing. Callbacks throw ingot::Error.
#pragma once

#include <string>
#include <vector>

namespace ingot {

class Command;
class CommandLine;

// Prints "note: ..." on standard error, so notes do not mix with results.
void print_notes(const std::vector<std::string>& notes);

void add_train_command(Command& app, const std::vector<std::string>& line);  // line: the command as typed
void add_launch_command(Command& app);
void add_eval_command(Command& app);
void add_generate_command(Command& app);
void add_chat_command(Command& app);
void add_export_command(Command& app);
void add_tokenizer_command(Command& app);
void add_data_command(Command& app);
void add_bench_command(Command& app);
void add_plan_command(Command& app);
void add_sweep_command(Command& app);
void add_lr_range_command(Command& app);
void add_compare_command(Command& app);
void add_schedule_command(Command& app);
void add_doctor_command(Command& app);
void add_status_command(Command& app);
// These describe the whole command line, which must outlive the parsing.
void add_completion_command(Command& app, const CommandLine& line);
void add_man_command(Command& app, const CommandLine& line, const std::string& version);
void add_serve_command(Command& app);
void add_api_command(Command& app);
void add_watch_command(Command& app);
void add_export_run_command(Command& app);
void add_precision_bench(Command& bench);  // a subcommand of `ingot bench`

}  // namespace ingot
