#include "ingot/console/colour.h"

#include <algorithm>
#include <cstdlib>

namespace ingot {
namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

const char* sequence(Colour colour) {
  switch (colour) {
    case Colour::kRed:
      return "\x1b[31m";
    case Colour::kGreen:
      return "\x1b[32m";
    case Colour::kYellow:
      return "\x1b[33m";
    case Colour::kDim:
      break;
  }
  return "\x1b[2m";
}

// Examples: "12/2000", "3.0e-4", "-1.5", "38.1%", "3m41s", "nan".
bool is_number(std::string_view word) {
  return word.find_first_of("0123456789?") == 0 || word.starts_with('-') || word == "nan" || word == "inf";
}

}  // namespace

bool wants_colour(bool is_terminal) {
  if (!variable("NO_COLOR").empty()) return false;
  const std::string_view force = variable("FORCE_COLOR");
  if (!force.empty()) return force != "0";
  const std::string_view term = variable("TERM");
  return is_terminal && !term.empty() && term != "dumb";
}

std::string painted(std::string_view text, Colour colour) {
  return std::string(sequence(colour)).append(text).append("\x1b[0m");
}

std::string painted_fields(std::string_view line) {
  std::string out, labels;  // labels: words and the spaces between them
  const auto flush = [&] {
    if (labels.find_first_not_of(' ') == std::string::npos)
      out += labels;
    else
      out += painted(labels, Colour::kDim);
    labels.clear();
  };
  while (!line.empty()) {
    const size_t spaces = std::min(line.find_first_not_of(' '), line.size());
    labels.append(line.substr(0, spaces));
    line.remove_prefix(spaces);
    const std::string_view word = line.substr(0, line.find(' '));
    line.remove_prefix(word.size());
    if (word == "best" || is_number(word)) {
      flush();
      out += word == "best" ? painted(word, Colour::kGreen) : std::string(word);
    } else {
      labels += word;
    }
  }
  flush();
  return out;
}

}  // namespace ingot
