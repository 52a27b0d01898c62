// The `ingot` program. Exit codes: 0 done, 75 interrupted and saved, otherwise as ingot/core/error.h.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/launch.h"
#include "ingot/core/error.h"
#include "ingot/train/nearest.h"

namespace ingot {
namespace {

int refuse(const char* message, ErrorKind kind) {
  let_first_process_speak();
  std::fflush(stdout);
  fmt::print(stderr, "ingot: {}\n", message);
  return exit_code(kind);
}

// CLI11 says of a misspelt command only that one is required.
void check_command(const CLI::App& app, const std::string& given) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  if (given.starts_with("-") || std::ranges::find(names, given) != names.end()) return;
  fail(ErrorKind::kUsage, "{}: unknown command{}; the commands are {}", given,
       did_you_mean(nearest_names(given, names)), list_names(names));
}

int run(int argc, char** argv) {
  CLI::App app("Ingot trains language models from scratch", "ingot");
  app.set_version_flag("--version", std::string("ingot ") + INGOT_VERSION);
  app.require_subcommand(1);
  app.failure_message([](const CLI::App*, const CLI::Error& error) {
    return fmt::format("ingot: {}\nTry --help.\n", error.what());
  });
  add_train_command(app);
  add_eval_command(app);
  add_generate_command(app);
  add_tokenizer_command(app);
  add_bench_command(app);
  add_data_command(app);
  add_schedule_command(app);
  add_doctor_command(app);
  if (argc > 1) check_command(app, argv[1]);
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::RuntimeError& error) {
    return error.get_exit_code();
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : exit_code(ErrorKind::kUsage);
  }
}

}  // namespace
}  // namespace ingot

int main(int argc, char** argv) {
  using ingot::ErrorKind;
  try {
    return ingot::run(argc, argv);
  } catch (const ingot::Error& error) {
    return ingot::refuse(error.what(), error.kind());
  } catch (const std::bad_alloc&) {
    return ingot::refuse("out of memory: lower train.batch_size, model.context or model.width",
                         ErrorKind::kMemory);
  } catch (const std::exception& error) {
    return ingot::refuse(error.what(), ErrorKind::kInternal);
  }
}
