// The last words of a run on the console: how good the model is, said plainly, and what to do next.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "ingot/config/config.h"
#include "ingot/data/builtin_corpus.h"

namespace ingot {

// One sentence that compares the model's bits per byte with the compressors': "the model needs 1.65 bits per
// byte of text it has not seen; gzip -9 needs 2.38 and xz -9e 2.06: it beats both". Empty without yardsticks.
std::string compression_verdict(double model_bits_per_byte, std::span<const Yardstick> yardsticks);

// Shell commands that work as they stand (but for FILE and "..."), in the folder where the run was started:
// generate, with a prompt of the configuration, eval, resume.
std::vector<std::string> next_commands(const std::filesystem::path& run, const RunConfig& config);

// The text as one word of a shell command, in quotes if it needs them.
std::string shell_word(const std::string& text);

}  // namespace ingot
