// ingot chat: a conversation with a model. Control characters in answers are escaped on a terminal and
// unchanged in a pipe or a file.
#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/line_reader.h"
#include "apps/model_options.h"
#include "apps/run_note.h"
#include "ingot/console/colour.h"
#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/core/machine.h"
#include "ingot/core/visible_text.h"
#include "ingot/run/chat_session.h"

namespace ingot {
namespace {

struct ChatArguments {
  std::string model;
  ModelOptions model_options;
  ChatOptions options;
};

constexpr std::string_view kHelp =
    "/reset         forget the conversation\n"
    "/save FILE     append the conversation to a file of chat data (.jsonl)\n"
    "/help          this list\n"
    "/exit          end, as Ctrl-D does\n"
    "A line that ends with \\ continues on the next one. Ctrl-C stops an answer.\n";

// Returns what is worth knowing about an answer, in one line.
std::string summary(const ChatAnswer& answer) {
  std::string text = fmt::format("{} tokens", answer.tokens);
  if (answer.tokens > 1 && answer.answer_s > 0)
    text += fmt::format(", {:.1f} tokens/s", static_cast<double>(answer.tokens - 1) / answer.answer_s);
  text += fmt::format("; {} tokens read in {:.2f} s; {:.0f} MB", answer.read, answer.read_s,
                      static_cast<double>(rss_bytes()) / 1e6);
  if (answer.end == ChatAnswer::End::kStopped) text += "; stopped";
  if (answer.end == ChatAnswer::End::kCut) text += "; cut by --tokens";
  if (answer.end == ChatAnswer::End::kContext) text += "; the context is full";
  if (answer.forgotten > 0) text += fmt::format("; the first {} messages no longer fit", answer.forgotten);
  return text;
}

class Chat {
 public:
  explicit Chat(const ChatArguments& arguments)
      : session_(arguments.model, arguments.options),
        has_colour_(wants_colour(isatty(STDOUT_FILENO) != 0)),
        is_escaped_(isatty(STDOUT_FILENO) != 0) {}

  void run() {
    if (lines_.is_terminal())
      fmt::print("{}, template {}. /help lists the commands.\n", visible_line(session_.path().string()),
                 session_.template_name());
    while (std::optional<std::string> line = lines_.next()) {
      while (line->ends_with('\\')) {
        line->back() = '\n';
        const std::optional<std::string> more = lines_.next();
        if (!more) break;
        *line += *more;
      }
      try {
        if (line->starts_with('/')) {
          if (!obey(*line)) return;
        } else if (!line->empty()) {
          answer(*line);
        }
      } catch (const Error& error) {
        if (!lines_.is_terminal()) throw;
        fmt::print(stderr, "{}\n", visible_text(error.what()));
      }
    }
    if (lines_.is_terminal()) fmt::print("\n");
  }

 private:
  // Returns false if the command ends the conversation.
  bool obey(const std::string& line) {
    const std::string_view command = std::string_view(line).substr(0, line.find(' '));
    const std::string rest = command.size() < line.size() ? line.substr(command.size() + 1) : "";
    if (command == "/exit" || command == "/quit") return false;
    if (command == "/reset")
      session_.reset();
    else if (command == "/help")
      fmt::print("{}", kHelp);
    else if (command == "/save" && !rest.empty())
      save(rest);
    else
      fail(ErrorKind::kUsage, "{} is no command; /help lists them, and /save needs a file",
           visible_line(line));
    return true;
  }

  void save(const std::string& file) {
    const std::string before = path_exists(file) ? read_file(file) : "";
    write_file(file, before + chat_line(session_.messages()) + "\n");
    if (lines_.is_terminal())
      fmt::print("{} messages are saved in {}\n", session_.messages().size(), visible_line(file));
  }

  void answer(const std::string& question) {
    const ChatAnswer answer = session_.ask(question, [&](std::string_view piece) {
      const std::string shown = is_escaped_ ? visible_text(piece) : std::string(piece);
      std::fwrite(shown.data(), 1, shown.size(), stdout);
      std::fflush(stdout);
      return !lines_.take_interrupt();
    });
    fmt::print("\n");
    if (lines_.is_terminal()) {
      const std::string text = fmt::format("[{}]", summary(answer));
      fmt::print("{}\n", has_colour_ ? painted(text, Colour::kDim) : text);
    }
    std::fflush(stdout);
  }

  LineReader lines_{"> "};  // It blocks SIGINT, also for the threads that the session starts later.
  ChatSession session_;
  bool has_colour_, is_escaped_;
};

void chat(const ChatArguments& arguments) {
  ChatArguments given = arguments;
  given.options.sample.validate();
  given.options.model = arguments.model_options.served();
  note_on_run(arguments.model);
  Chat(given).run();
}

}  // namespace

void add_chat_command(Command& app) {
  auto arguments = std::make_shared<ChatArguments>();
  ChatOptions& o = arguments->options;
  Command* command = app.add_subcommand("chat", "Talk with a model that was trained on chats");
  command->add_option("model", arguments->model, "A checkpoint's folder, or a run's")->required();
  command->add_option("--system", o.system, "The system message");
  command->add_option("--chat-template", o.template_name,
                      "Name of a known template, in place of the folder's");
  arguments->model_options.add_to(*command);
  command->add_option("--tokens", o.tokens, "Tokens of an answer, at most")->count(1)->capture_default_str();
  add_sample_options(*command, o.sample);
  command->add_option("--seed", o.seed, "Equal seeds give equal answers to equal conversations")
      ->capture_default_str();
  command->footer([] { return std::string(kHelp); });
  command->callback([arguments] { chat(*arguments); });
}

}  // namespace ingot
