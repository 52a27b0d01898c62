// The `ingot` program.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "apps/commands.h"
#include "ingot/core/error.h"

int main(int argc, char** argv) {
  CLI::App app("Ingot trains language models from scratch");
  app.require_subcommand(1);
  ingot::add_tokenizer_command(app);
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : ingot::exit_code(ingot::ErrorKind::kUsage);
  } catch (const ingot::Error& error) {
    fmt::print(stderr, "ingot: {}\n", error.what());
    return ingot::exit_code(error.kind());
  } catch (const std::exception& error) {
    fmt::print(stderr, "ingot: {}\n", error.what());
    return 1;
  }
}
