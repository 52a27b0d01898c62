// The functions of builtin_corpus.h that run other programs: the compiler, gzip and xz.
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <future>
#include <memory>
#include <optional>

#include "ingot/core/error.h"
#include "ingot/core/process/child_output.h"
#include "ingot/data/builtin_corpus.h"

namespace ingot {
namespace fs = std::filesystem;
namespace {

// Calls take(bytes) with the output of a shell command. Returns false if the command cannot be run or fails.
template <typename Take>
bool run_command(const std::string& command, Take take) {
  return read_output({"/bin/sh", "-c", command}, [&](std::string_view bytes) {
    take(bytes);
    return true;
  });
}

struct CompilerReport {
  std::string version;
  std::vector<fs::path> folders;  // search folders of <...> includes, in search order
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

// An in-memory file with the documents' bytes, which other programs can open.
class TextInMemory {
 public:
  explicit TextInMemory(const Documents& documents) : fd_(::memfd_create("ingot-yardstick", MFD_CLOEXEC)) {
    for (const Document& document : documents)
      if (!write(document.text)) return;
    is_whole_ = fd_ >= 0;
  }
  ~TextInMemory() {
    if (fd_ >= 0) ::close(fd_);
  }
  TextInMemory(const TextInMemory&) = delete;
  TextInMemory& operator=(const TextInMemory&) = delete;
  // Returns the path under which a child process can open the file, or an empty string if there is none.
  std::string path() const {
    const std::string path = fmt::format("/proc/{}/fd/{}", ::getpid(), fd_);
    return is_whole_ && ::access(path.c_str(), R_OK) == 0 ? path : "";
  }

 private:
  bool write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t n = ::write(fd_, text.data(), text.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      text.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }

  int fd_;
  bool is_whole_ = false;
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

Yardsticks compression_yardsticks(const Documents& documents) {
  const auto bytes = static_cast<double>(documents.size_bytes());
  if (bytes == 0) return {};
  const TextInMemory text(documents);
  const std::string path = text.path();
  if (path.empty()) return {{}, "gzip and xz: the text cannot be handed to them (no memory, or no /proc)"};
  using Size = std::optional<int64_t>;
  std::vector<std::pair<std::string, std::future<Size>>> running;
  for (const std::string program : {"gzip -9", "xz -9e"})
    running.emplace_back(program, std::async(std::launch::async, [&path, program] {
                           return piped_bytes(program + " -c < " + path + " 2>/dev/null");
                         }));
  Yardsticks yardsticks;
  for (auto& [name, result] : running) {
    const Size compressed = result.get();
    if (compressed)
      yardsticks.measured.push_back({name, 8 * static_cast<double>(*compressed) / bytes});
    else
      yardsticks.missing += (yardsticks.missing.empty() ? "" : ", ") + name;
  }
  if (!yardsticks.missing.empty()) yardsticks.missing += ": cannot be run; install it to compare";
  return yardsticks;
}

}  // namespace ingot
