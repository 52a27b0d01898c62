// ingot completion SHELL, and ingot man --out DIR
#include <fmt/core.h>

#include <filesystem>
#include <memory>
#include <string>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/help/completion.h"
#include "apps/help/man_pages.h"
#include "ingot/core/file.h"
#include "ingot/core/output.h"

namespace ingot {

void add_completion_command(Command& app, const CommandLine& line) {
  auto shell = std::make_shared<std::string>();
  Command* command = app.add_subcommand("completion", "Print a shell's completion script for ingot");
  command->add_option("shell", *shell, "bash, zsh or fish")->required();
  command->footer([] {
    return std::string(
        "bash: ingot completion bash > ~/.local/share/bash-completion/completions/ingot\n"
        "zsh:  ingot completion zsh > DIR/_ingot, where DIR is in $fpath\n"
        "fish: ingot completion fish > ~/.config/fish/completions/ingot.fish");
  });
  command->callback([shell, &line] { fmt::print("{}", completion_script(line.tree(), *shell)); });
}

void add_man_command(Command& app, const CommandLine& line, const std::string& version) {
  auto out = std::make_shared<std::string>();
  Command* command = app.add_subcommand("man", "Write the manual pages of all commands and keys");
  command->add_option("--out", *out, "Folder for the pages; it is created")->type_name("DIR")->required();
  command->callback([out, &line, version] {
    make_folders(*out);
    for (const auto& [name, text] : man_pages(line.tree(), version))
      write_file(std::filesystem::path(*out) / name, text);
  });
}

}  // namespace ingot
