// The subcommands of `ingot`. Each adds itself, its options and a callback that runs when it is parsed:
// parse, build, run. Callbacks throw ingot::Error; CLI::RuntimeError(code) ends the program with that code,
// silently.
#pragma once

namespace CLI {
class App;
}

namespace ingot {

constexpr int kExitInterrupted = 75;  // saved, and --resume goes on

void add_train_command(CLI::App& app);
void add_eval_command(CLI::App& app);
void add_generate_command(CLI::App& app);
void add_tokenizer_command(CLI::App& app);
void add_data_command(CLI::App& app);
void add_bench_command(CLI::App& app);
void add_schedule_command(CLI::App& app);
void add_doctor_command(CLI::App& app);
void add_precision_bench(CLI::App& bench);  // of `ingot bench`

}  // namespace ingot
