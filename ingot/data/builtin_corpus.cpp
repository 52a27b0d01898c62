#include "ingot/data/builtin_corpus.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <unordered_set>

#include "ingot/core/error.h"
#include "ingot/data/tokenizer/unicode.h"

namespace ingot {
namespace fs = std::filesystem;
namespace {

constexpr size_t kLongLine = 40;  // characters; shorter lines repeat in any C++ code and are no leak

constexpr std::array kSkippedFolders = {"tr1",      "tr2",          "profile", "debug",
                                        "parallel", "experimental", "backward"};
// Prefixes of file and folder names after their leading underscores: bits/fs_path.h, __chrono/day.h.
constexpr std::array kValidationComponents = {"regex",  "chrono",     "format", "charconv",
                                              "ranges", "filesystem", "fs_"};
constexpr std::array kLicenceWords = {"copyright", "license", "licence", "warranty", "gpl version"};

std::string_view trimmed(std::string_view line) {
  const size_t begin = line.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return line.substr(begin, line.find_last_not_of(" \t\r") - begin + 1);
}

// Splits the text into lines; each keeps its newline.
std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size() - 1);
    lines.push_back(text.substr(0, end + 1));
    text.remove_prefix(end + 1);
  }
  return lines;
}

std::string_view content(std::string_view line) { return trimmed(line.substr(0, line.find('\n'))); }

// Returns the index after the comment block that begins at line i, or i if no comment begins there.
size_t comment_end(const std::vector<std::string_view>& lines, size_t i) {
  size_t end = i;
  if (content(lines[i]).starts_with("//")) {
    while (end < lines.size() && content(lines[end]).starts_with("//")) ++end;
  } else if (content(lines[i]).starts_with("/*")) {
    while (end < lines.size() && lines[end].find("*/") == std::string_view::npos) ++end;
    end = std::min(end + 1, lines.size());
  }
  return end;
}

bool is_licence(std::string_view block) {
  std::string lower(block);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::any_of(kLicenceWords.begin(), kLicenceWords.end(),
                     [&](const char* word) { return lower.find(word) != std::string::npos; });
}

bool is_skipped(const fs::path& relative) {
  return std::any_of(kSkippedFolders.begin(), kSkippedFolders.end(),
                     [&](const char* folder) { return *relative.begin() == folder; });
}

bool is_validation(const fs::path& relative) {
  for (const fs::path& part : relative) {
    std::string_view name = part.native();
    name.remove_prefix(std::min(name.find_first_not_of('_'), name.size()));
    for (const std::string_view component : kValidationComponents)
      if (name.starts_with(component)) return true;
  }
  return false;
}

std::vector<fs::path> header_files(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    const fs::path relative = it->path().lexically_relative(folder);
    if (it->is_regular_file(ignored) && !is_skipped(relative)) files.push_back(relative);
  }
  if (error) fail(ErrorKind::kData, "{}: the folder cannot be read: {}", folder.string(), error.message());
  std::sort(files.begin(), files.end());
  return files;
}

std::string without_lines(std::string_view text, const std::unordered_set<std::string_view>& lines) {
  std::string kept;
  for (const std::string_view line : lines_of(text))
    if (!lines.contains(content(line))) kept += line;
  return kept;
}

}  // namespace

std::string strip_licences(std::string_view text) {
  const std::vector<std::string_view> lines = lines_of(text);
  std::string kept;
  for (size_t i = 0; i < lines.size();) {
    const size_t end = comment_end(lines, i);
    if (end == i) {
      kept += lines[i++];
      continue;
    }
    const char* first = lines[i].data();
    const std::string_view block(first,
                                 static_cast<size_t>(lines[end - 1].data() - first) + lines[end - 1].size());
    i = end;
    if (!is_licence(block)) {
      kept += block;
      continue;
    }
    while (i < lines.size() && content(lines[i]).empty()) ++i;
  }
  return kept;
}

BuiltinCorpus collect_cpp_headers(const fs::path& folder) {
  BuiltinCorpus corpus;
  corpus.folder = folder;
  std::vector<std::pair<std::string, std::string>> train;  // name, text
  std::unordered_set<std::string> seen;
  for (const fs::path& relative : header_files(folder)) {
    const MappedFile file(folder / relative);
    const std::string_view raw = file.text();
    if (raw.find('\0') != std::string_view::npos || valid_utf8_end(raw, 0) != raw.size()) continue;
    std::string text = strip_licences(raw);
    if (trimmed(text).empty() || !seen.insert(text).second) continue;
    corpus.headers_bytes += static_cast<int64_t>(raw.size());
    corpus.licence_bytes += static_cast<int64_t>(raw.size() - text.size());
    text.insert(0, fmt::format("// FILE: {}\n", relative.string()));
    if (is_validation(relative))
      corpus.val.add(relative.string(), std::move(text));
    else
      train.emplace_back(relative.string(), std::move(text));
  }
  std::unordered_set<std::string_view> long_lines;
  for (const Document& document : corpus.val)
    for (const std::string_view line : lines_of(document.text))
      if (content(line).size() >= kLongLine) long_lines.insert(content(line));
  for (const auto& [name, text] : train) {
    std::string kept = without_lines(text, long_lines);
    corpus.duplicated_bytes += static_cast<int64_t>(text.size() - kept.size());
    corpus.train.add(name, std::move(kept));
  }
  corpus.hash = corpus.train.content_hash() ^ (corpus.val.content_hash() * 0x9E3779B97F4A7C15u);
  return corpus;
}

std::string BuiltinCorpus::describe() const {
  return fmt::format("{} C++ headers of {}: {:.2f} MB train, {:.2f} MB validation, hash {:016x}",
                     train.size() + val.size(), compiler, static_cast<double>(train.size_bytes()) * 1e-6,
                     static_cast<double>(val.size_bytes()) * 1e-6, hash);
}

DocumentSplit builtin_split(std::string_view spec) {
  if (spec == kBibleCorpus) {
    BibleCorpus corpus = load_bible();
    return {std::move(corpus.train), std::move(corpus.val)};
  }
  BuiltinCorpus corpus = load_cpp_headers();
  return {std::move(corpus.train), std::move(corpus.val)};
}

std::string describe_builtin(std::string_view spec) {
  return spec == kBibleCorpus ? load_bible().describe() : load_cpp_headers().describe();
}

Documents builtin_documents(std::string_view spec) {
  const std::string_view corpus = spec.starts_with(kBibleCorpus) ? kBibleCorpus : kCppHeadersCorpus;
  const std::string_view part = spec.starts_with(corpus) ? spec.substr(corpus.size()) : "?";
  if (!part.empty() && part != ":train" && part != ":val")
    fail(ErrorKind::kUsage, "{}: is no built-in corpus; there are {} and {}, each also with :train or :val",
         spec, kBibleCorpus, kCppHeadersCorpus);
  DocumentSplit parts = builtin_split(corpus);
  if (part == ":train") return parts.train;
  if (part == ":val") return parts.val;
  for (const Document& document : parts.val) parts.train.add(document.name, std::string(document.text));
  return parts.train;
}

}  // namespace ingot
