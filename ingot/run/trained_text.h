// Tells whether a text that is to be evaluated is text that the model was trained on.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "ingot/data/token_source.h"

namespace ingot {

// Returns a warning if the text is what the checkpoint's run was trained on: one of its files, or the same
// tokens; "" otherwise, and for checkpoints that Ingot did not write. specs: the text's names, as in
// load_stream.
std::string trained_text_warning(const std::filesystem::path& checkpoint,
                                 const std::vector<std::string>& specs, const TokenSource& text);

}  // namespace ingot
