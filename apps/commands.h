// The subcommands of `ingot`. Each adds itself, its options and a callback that runs when it is parsed.
#pragma once

namespace CLI {
class App;
}

namespace ingot {

void add_tokenizer_command(CLI::App& app);

}  // namespace ingot
