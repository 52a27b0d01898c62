#include "ingot/data/hub_hint.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>

#include "ingot/core/file.h"

namespace ingot {

std::string hub_hint(const std::filesystem::path& given) {
  const std::string name = given.string();
  const auto is_part_of_name = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == '/';
  };
  if (name.empty() || !std::isalnum(static_cast<unsigned char>(name.front())) || name.ends_with(".json") ||
      std::ranges::count(name, '/') > 1 || !std::ranges::all_of(name, is_part_of_name) || path_exists(given))
    return {};
  return fmt::format(
      ". If this is a name on the Hugging Face Hub: Ingot does not fetch it; get the files by `hf download "
      "{} "
      "--local-dir DIR` (pip install huggingface_hub) and give DIR",
      name);
}

}  // namespace ingot
