#include "apps/line_reader.h"

#include <fmt/core.h>
#include <unistd.h>

#include <clocale>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <iostream>
#include <utility>

#ifdef INGOT_WITH_EDIT
#include <histedit.h>
#endif

namespace ingot {
namespace {

sigset_t interrupts() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  return signals;
}

}  // namespace

#ifdef INGOT_WITH_EDIT

struct LineReader::Editor {
  Editor(LineReader& reader, const char* program) : history(history_init()) {
    std::setlocale(LC_CTYPE, "");  // libedit takes UTF-8 for what the locale says
    line = el_init(program, stdin, stdout, stderr);
    HistEvent event;
    ::history(history, &event, H_SETSIZE, 1000);
    el_set(line, EL_CLIENTDATA, &reader);
    el_set(line, EL_PROMPT, &prompt);
    el_set(line, EL_EDITOR, "emacs");
    el_set(line, EL_HIST, ::history, history);
    // Ctrl-C is a key while a line is typed: the signal would not empty the line.
    el_set(line, EL_SETTY, "-d", "-isig", nullptr);
    el_set(line, EL_ADDFN, "ingot-clear", "Empty the line", &clear);
    el_set(line, EL_BIND, "^C", "ingot-clear", nullptr);
  }
  ~Editor() {
    history_end(history);
    el_end(line);
  }
  Editor(const Editor&) = delete;
  Editor& operator=(const Editor&) = delete;

  static const char* prompt(EditLine* line) {
    LineReader* reader = nullptr;
    el_get(line, EL_CLIENTDATA, &reader);
    return reader->prompt_.c_str();
  }
  static unsigned char clear(EditLine* line, int) {
    const LineInfo* info = el_line(line);
    el_cursor(line, static_cast<int>(info->lastchar - info->cursor));
    el_deletestr(line, static_cast<int>(el_line(line)->cursor - el_line(line)->buffer));
    return CC_REFRESH;
  }

  std::optional<std::string> next() {
    int length = 0;
    const char* text = el_gets(line, &length);
    if (!text || length <= 0) return std::nullopt;
    HistEvent event;
    ::history(history, &event, H_ENTER, text);
    return std::string(text, static_cast<size_t>(length));
  }

  History* history;
  EditLine* line = nullptr;
};

#else

struct LineReader::Editor {};

#endif

LineReader::LineReader(std::string prompt)
    : prompt_(std::move(prompt)), is_terminal_(isatty(STDIN_FILENO) != 0) {
  if (!is_terminal_) return;
  const sigset_t signals = interrupts();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
#ifdef INGOT_WITH_EDIT
  editor_ = std::make_unique<Editor>(*this, "ingot");
#endif
}

LineReader::~LineReader() = default;

std::optional<std::string> LineReader::next() {
  std::optional<std::string> text;
#ifdef INGOT_WITH_EDIT
  if (editor_) text = editor_->next();
#endif
  if (!editor_) {
    if (is_terminal_) {
      fmt::print("{}", prompt_);
      std::fflush(stdout);
    }
    std::string line;
    if (std::getline(std::cin, line)) text = std::move(line);
  }
  take_interrupt();
  while (text && (text->ends_with('\n') || text->ends_with('\r'))) text->pop_back();
  return text;
}

bool LineReader::take_interrupt() {
  if (!is_terminal_) return false;
  const sigset_t signals = interrupts();
  const timespec at_once{};
  return sigtimedwait(&signals, nullptr, &at_once) == SIGINT;
}

}  // namespace ingot
