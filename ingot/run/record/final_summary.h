// The last lines of a run on the console: how good the model is and what to do next.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "ingot/config/config.h"
#include "ingot/data/builtin_corpus.h"

namespace ingot {

// Compares the model's bits per byte with the compressors' in one sentence: "the model needs 1.65 bits per
// byte of text it has not seen; gzip -9 needs 2.38 and xz -9e 2.06: it beats both". Empty without
// yardsticks.
std::string compression_verdict(double model_bits_per_byte, std::span<const Yardstick> yardsticks);

// Shell commands to generate (with a prompt of the configuration), evaluate and resume. Apart from FILE and
// "..." they work as printed, in the folder where the run was started.
std::vector<std::string> next_commands(const std::filesystem::path& run, const RunConfig& config);

// Returns the text as one word of a shell command, quoted if necessary.
std::string shell_word(const std::string& text);

}  // namespace ingot
