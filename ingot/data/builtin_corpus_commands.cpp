// What of the built-in corpus runs other programs: the compiler, gzip and xz.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <future>
#include <memory>
#include <optional>

#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/data/builtin_corpus.h"

namespace ingot {
namespace fs = std::filesystem;
namespace {

std::string shell_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) c == '\'' ? quoted += "'\\''" : quoted += c;
  return quoted + "'";
}

// Calls take(bytes) for what the shell command prints; false if it cannot be run or fails.
template <typename Take>
bool run_command(const std::string& command, Take take) {
  FILE* pipe = ::popen(command.c_str(), "r");
  if (!pipe) return false;
  std::array<char, 65536> buffer;
  for (size_t n; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    take(std::string_view(buffer.data(), n));
  const int status = ::pclose(pipe);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

struct CompilerReport {
  std::string version;
  std::vector<fs::path> folders;  // of <...> includes, in search order
};

std::optional<CompilerReport> ask_compiler(const std::string& compiler) {
  std::string output;
  if (!run_command("LC_ALL=C " + compiler + " -E -x c++ -v /dev/null 2>&1 </dev/null",
                   [&](std::string_view bytes) { output += bytes; }))
    return std::nullopt;
  CompilerReport report{compiler, {}};
  bool is_in_list = false;
  for (size_t begin = 0; begin < output.size();) {
    const size_t end = std::min(output.find('\n', begin), output.size());
    const std::string_view line = std::string_view(output).substr(begin, end - begin);
    begin = end + 1;
    if (line.starts_with("#include <...>"))
      is_in_list = true;
    else if (line.starts_with("End of search list"))
      is_in_list = false;
    else if (is_in_list && line.starts_with(' '))
      report.folders.emplace_back(line.substr(1, line.find(" (framework") - 1));
    else if (line.find(" version ") != std::string_view::npos && line.find('"') == std::string_view::npos &&
             report.version == compiler)
      report.version = line.substr(0, line.find_last_not_of(' ') + 1);
  }
  return report;
}

std::optional<int64_t> piped_bytes(const std::string& command) {
  int64_t count = 0;
  if (!run_command(command, [&](std::string_view bytes) { count += static_cast<int64_t>(bytes.size()); }))
    return std::nullopt;
  return count;
}

// A file in the system's folder for such, gone with this object.
class TemporaryText {
 public:
  explicit TemporaryText(const Documents& documents)
      : path_(fs::temp_directory_path() / fmt::format("ingot-yardstick-{}.txt", ::getpid())) {
    OutputFile file(path_);
    for (const Document& document : documents) file.write(document.text);
    file.close();
  }
  ~TemporaryText() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  TemporaryText(const TemporaryText&) = delete;
  TemporaryText& operator=(const TemporaryText&) = delete;
  std::string quoted_path() const { return shell_quoted(path_.string()); }

 private:
  fs::path path_;
};

}  // namespace

BuiltinCorpus load_cpp_headers(const std::string& compiler) {
  std::vector<std::string> candidates = {"c++", "g++", "clang++"};
  if (!compiler.empty()) candidates = {compiler};
  std::string tried;
  for (const std::string& candidate : candidates) {
    tried += (tried.empty() ? "" : ", ") + candidate;
    const std::optional<CompilerReport> report = ask_compiler(candidate);
    if (!report) continue;
    for (const fs::path& folder : report->folders) {
      std::error_code ignored;
      if (!fs::is_regular_file(folder / "vector", ignored)) continue;
      BuiltinCorpus corpus = collect_cpp_headers(fs::canonical(folder));
      corpus.compiler = report->version;
      if (!corpus.train.empty() && !corpus.val.empty()) return corpus;
    }
  }
  fail(ErrorKind::kData,
       "{}: no C++ compiler with standard headers was found (tried {}); install one (apt-get install g++) or "
       "give "
       "your own text",
       kCppHeadersCorpus, tried);
}

std::vector<Yardstick> compression_yardsticks(const Documents& documents) {
  const auto bytes = static_cast<double>(documents.size_bytes());
  if (bytes == 0) return {};
  const TemporaryText text(documents);
  const auto measure = [&](const std::string& program) {
    return std::async(std::launch::async, [&text, program] {
      return piped_bytes(program + " -c " + text.quoted_path() + " 2>/dev/null");
    });
  };
  std::vector<std::pair<std::string, std::future<std::optional<int64_t>>>> running;
  for (const char* program : {"gzip -9", "xz -9e"}) running.emplace_back(program, measure(program));
  std::vector<Yardstick> yardsticks;
  for (auto& [name, result] : running)
    if (const std::optional<int64_t> compressed = result.get())
      yardsticks.push_back({name, *compressed, 8 * static_cast<double>(*compressed) / bytes});
  return yardsticks;
}

}  // namespace ingot
