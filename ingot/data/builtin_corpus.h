// The built-in corpus "builtin:cpp-headers": the standard library's headers, which every machine with a
// C++ compiler has.
//
// Rules: the compiler reports the folder of its headers (this works for libstdc++ and libc++). The folders
// tr1, tr2, profile, debug, parallel, experimental and backward are skipped because they hold older or
// instrumented copies of the rest. Files that are not UTF-8 text and duplicates of a text are skipped too.
// Comment blocks about licence and warranty are removed. Each file is one document and begins with the line
// "// FILE: name". The validation text consists of whole components (regex, chrono, format, charconv, ranges,
// filesystem: about a tenth). Lines of 40 characters or more that occur in validation are removed from
// training. Results from different compiler versions are not comparable; describe() names the version.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "ingot/data/builtin_bible.h"
#include "ingot/data/corpus.h"

namespace ingot {

inline constexpr std::string_view kCppHeadersCorpus = "builtin:cpp-headers";

struct BuiltinCorpus {
  Documents train, val;
  std::string compiler;          // the version line that the compiler prints
  std::filesystem::path folder;  // folder of the headers
  int64_t headers_bytes = 0;     // size of the files used, before any rule is applied
  int64_t licence_bytes = 0;     // removed as licence comments
  int64_t duplicated_bytes = 0;  // removed from train because validation has the same line
  uint64_t hash = 0;             // covers train and val; equal only if every document is equal

  // "573 C++ headers of gcc version 12.2.0 ...: 6.9 MB train, 0.8 MB val, hash 0123456789abcdef"
  std::string describe() const;
};

// Asks `compiler` for its headers (if empty: the first of c++, g++, clang++ that answers). kData error,
// with the fix, if no compiler answers or it reports no folder with standard headers.
BuiltinCorpus load_cpp_headers(const std::string& compiler = {});

// Applies the rules to the headers in a folder, without a compiler. load_cpp_headers calls it once it knows
// the folder.
BuiltinCorpus collect_cpp_headers(const std::filesystem::path& folder);

// Returns the training and validation documents of "builtin:cpp-headers" or "builtin:bible"
// (builtin_bible.h).
DocumentSplit builtin_split(std::string_view spec);

// Describes the corpus in one line. REQUIRES: `spec` is one of the two names.
std::string describe_builtin(std::string_view spec);

// Returns the documents of a built-in corpus: training documents first, then validation. If ":train" or
// ":val" is appended to the name, returns only that split. kUsage error for any other name.
Documents builtin_documents(std::string_view spec);

// Returns the text without comment blocks (consecutive // lines, or /* */) about licence,
// copyright or warranty.
std::string strip_licences(std::string_view text);

// Yardstick is the size to which a general compressor reduces the documents. It is a reference value for a
// model's bits per byte.
struct Yardstick {
  std::string name;  // "gzip -9", "xz -9e"
  double bits_per_byte;
};

struct Yardsticks {
  std::vector<Yardstick> measured;
  std::string missing;  // the programs that could not be run, and why; empty if all ran
};

// A run compresses its validation text for comparison unless the text is longer than this.
inline constexpr int64_t kYardstickBytes = int64_t{16} << 20;

// Measures gzip and xz. It writes nothing to disk and throws no error: a failed measurement is in `missing`.
Yardsticks compression_yardsticks(const Documents& documents);

}  // namespace ingot
