// LineReader reads lines that a person types, with the editing keys and the history of libedit if Ingot was
// built with it. Otherwise, and for a file or a pipe, lines come as they are.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace ingot {

class LineReader {
 public:
  explicit LineReader(std::string prompt);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // Returns the next line without its end; nullopt at the end of the input. In a terminal, Ctrl-C empties the
  // line, and SIGINT does not end the program; it stays pending (take_interrupt).
  std::optional<std::string> next();
  bool is_terminal() const { return is_terminal_; }

  // Returns true if Ctrl-C was pressed since the last call or line.
  bool take_interrupt();

 private:
  struct Editor;  // It edits lines by libedit.

  std::string prompt_;
  bool is_terminal_;
  std::unique_ptr<Editor> editor_;
};

}  // namespace ingot
