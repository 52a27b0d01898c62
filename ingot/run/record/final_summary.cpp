#include "ingot/run/record/final_summary.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

namespace ingot {
namespace fs = std::filesystem;
namespace {

// Returns the program that PATH finds under this name; empty if there is none.
fs::path found_in_path(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const fs::path candidate = fs::path(folder.empty() ? "." : folder) / name;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return {};
}

// Returns how a shell in this folder starts this program: by its name if PATH finds it, otherwise by its
// path.
std::string program_word() {
  const std::string name = "ingot";
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error || self.filename() != name || fs::equivalent(found_in_path(name), self, error)) return name;
  const fs::path relative = self.lexically_proximate(fs::current_path(error));
  return shell_word(relative.native().starts_with("..") ? self.string() : relative.string());
}

// Returns the first prompt without control characters, or a generic one.
std::string prompt_of(const RunConfig& config) {
  for (const std::string& prompt : config.sample.prompts)
    if (!prompt.empty() && std::none_of(prompt.begin(), prompt.end(), [](char c) {
          return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
        }))
      return prompt;
  return "Once";
}

}  // namespace

std::string shell_word(const std::string& text) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_-./:=,+@%").find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), is_plain)) return text;
  if (text.find_first_of("\"$`\\!") == std::string::npos) return '"' + text + '"';
  std::string quoted = "'";
  for (const char c : text) c == '\'' ? quoted += "'\\''" : quoted += c;
  return quoted + "'";
}

std::string compression_verdict(double model_bits_per_byte, std::span<const Yardstick> yardsticks) {
  if (yardsticks.empty() || !(model_bits_per_byte > 0)) return {};
  std::string text =
      fmt::format("the model needs {:.3f} bits per byte of text that it has not seen; ", model_bits_per_byte);
  size_t beaten = 0;
  for (size_t i = 0; i < yardsticks.size(); ++i) {
    text += fmt::format("{}{}{} {:.3f}", i > 0 ? " and " : "", yardsticks[i].name, i > 0 ? "" : " needs",
                        yardsticks[i].bits_per_byte);
    beaten += model_bits_per_byte < yardsticks[i].bits_per_byte ? 1 : 0;
  }
  if (beaten == 0)
    return text + (yardsticks.size() > 1 ? ": it beats neither yet" : ": it does not beat that yet");
  if (beaten == yardsticks.size()) return text + (beaten > 1 ? ": it beats both" : ": it beats that");
  const auto is_beaten = [&](const Yardstick& y) { return model_bits_per_byte < y.bits_per_byte; };
  return text + fmt::format(": it beats {} only", std::ranges::find_if(yardsticks, is_beaten)->name);
}

std::vector<std::string> next_commands(const fs::path& run, const RunConfig& config) {
  const std::string program = program_word(), folder = shell_word(run.string());
  return {fmt::format("{} generate {} --prompt {}", program, folder, shell_word(prompt_of(config))),
          fmt::format("{} eval {} --data FILE", program, folder),
          fmt::format("{} train --resume --out {} --set train.steps=...", program, folder)};
}

}  // namespace ingot
