// TerminalScreen computes what a terminal shows after a program has written some bytes to it.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

// Interprets '\r', '\n', the sequences ESC[J, ESC[K and ESC[nA, and colours, and wraps at the last
// column: a line that is too long for the width takes several rows. Every byte is one character.
class TerminalScreen {
 public:
  explicit TerminalScreen(int columns) : columns_(static_cast<size_t>(columns)) {}

  // If `reflows` is true, lines are wrapped again for the new width, as in most terminals, and the cursor
  // stays at its character. Otherwise rows are cut at the new width, as in xterm.
  void resize(int columns, bool reflows) {
    columns_ = static_cast<size_t>(columns);
    if (reflows) return;
    for (std::string& line : lines_) line.resize(std::min(line.size(), columns_));
    at_ = std::min(at_, columns_ - 1);
  }

  void feed(std::string_view bytes) {
    while (!bytes.empty()) {
      const size_t used = bytes.starts_with("\x1b[") ? sequence(bytes) : 1;
      if (used == 1) character(bytes.front());
      bytes.remove_prefix(used);
    }
  }

  // Returns the lines without their trailing blanks, joined by '\n'.
  std::string text() const {
    std::string all;
    for (size_t i = 0; i < lines_.size(); ++i)
      all += (i ? "\n" : "") + lines_[i].substr(0, lines_[i].find_last_not_of(' ') + 1);
    return all;
  }
  // Returns the number of rows that the cursor's line takes.
  size_t rows() const { return std::max<size_t>(1, (lines_[line_].size() + columns_ - 1) / columns_); }

 private:
  size_t row_start() const { return at_ - (is_wrap_pending() ? columns_ : at_ % columns_); }
  bool is_wrap_pending() const { return at_ > 0 && at_ % columns_ == 0 && at_ == lines_[line_].size(); }

  void character(char c) {
    if (c == '\r') {
      at_ = row_start();
    } else if (c == '\n') {
      line_feed();
    } else if (c >= ' ') {
      std::string& line = lines_[line_];
      if (line.size() <= at_) line.resize(at_ + 1, ' ');
      line[at_++] = c;
    }
  }
  void line_feed() {
    at_ = row_start();
    if (at_ + columns_ < lines_[line_].size()) {
      at_ += columns_;
      return;
    }
    at_ = 0;
    if (++line_ == lines_.size()) lines_.emplace_back();
  }
  // Executes the escape sequence at the start of `bytes` and returns its size.
  size_t sequence(std::string_view bytes) {
    const size_t end = std::min(bytes.find_first_not_of("0123456789;?", 2), bytes.size() - 1);
    const std::string number(bytes.substr(2, end - 2));
    std::string& line = lines_[line_];
    if (bytes[end] == 'J') {
      line.resize(std::min(line.size(), at_));
      lines_.resize(line_ + 1);
    } else if (bytes[end] == 'K') {
      for (size_t i = at_; i < std::min(line.size(), row_start() + columns_); ++i) line[i] = ' ';
    } else if (bytes[end] == 'A') {
      for (int n = number.empty() ? 1 : std::stoi(number); n > 0; --n) up();
    }
    return end + 1;
  }
  void up() {
    if (at_ >= columns_) {
      at_ -= columns_;
    } else if (line_ > 0) {
      --line_;
      at_ += rows() * columns_ - columns_;
      lines_[line_].resize(std::max(lines_[line_].size(), at_), ' ');
    }
  }

  size_t columns_;
  std::vector<std::string> lines_{""};
  size_t line_ = 0, at_ = 0;  // position of the cursor
};

}  // namespace ingot
