// The corpus that every machine with a C++ compiler has: the standard library's headers, as
// "builtin:cpp-headers".
//
// Rules: the compiler says where its headers are (works for libstdc++ and libc++). tr1, tr2, profile, debug,
// parallel, experimental and backward are left out, being older or instrumented copies of the rest; so are
// files that are not UTF-8 text and second copies of one text. Comment blocks about licence and warranty are
// removed. A document is a file, begun by the line "// FILE: name". Validation is whole components (regex,
// chrono, format, charconv, ranges, filesystem: about a tenth); lines of 40 characters or more that stand in
// it are removed from the training part. Numbers from different compiler versions are not comparable;
// describe() says which it was.
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
  std::string compiler;          // its own version line
  std::filesystem::path folder;  // of the headers
  int64_t headers_bytes = 0;     // of the files used, before any rule
  int64_t licence_bytes = 0;     // removed as licence comments
  int64_t duplicated_bytes = 0;  // removed from train because validation has the same line
  uint64_t hash = 0;             // of train and val; equal only where every document is

  // "573 C++ headers of gcc version 12.2.0 ...: 6.9 MB train, 0.8 MB val, hash 0123456789abcdef"
  std::string describe() const;
};

// `compiler` empty: the first of c++, g++, clang++ that answers. kData error, with the fix, if none does or
// it reports no folder with standard headers.
BuiltinCorpus load_cpp_headers(const std::string& compiler = {});

// The rules alone, on the headers in a folder; what load_cpp_headers does once it knows where they are.
BuiltinCorpus collect_cpp_headers(const std::filesystem::path& folder);

// The parts of "builtin:cpp-headers" or "builtin:bible" (builtin_bible.h).
DocumentSplit builtin_split(std::string_view spec);

// What it is, in one line. REQUIRES: one of the two names.
std::string describe_builtin(std::string_view spec);

// A built-in corpus by its name: training documents, then validation; with ":train" or ":val" appended, that
// part. kUsage error for any other name.
Documents builtin_documents(std::string_view spec);

// The text without comment blocks (consecutive // lines, or /* */) that speak of licence, copyright or
// warranty.
std::string strip_licences(std::string_view text);

// How small a general compressor makes the documents' bytes: a yardstick for a model's bits per byte.
struct Yardstick {
  std::string name;  // "gzip -9", "xz -9e"
  int64_t compressed_bytes;
  double bits_per_byte;
};

struct Yardsticks {
  std::vector<Yardstick> measured;
  std::string missing;  // what could not be measured, and why; empty if nothing
};

// Measures gzip and xz. It writes nothing to a disk, and nothing that goes wrong is an error.
Yardsticks compression_yardsticks(const Documents& documents);

}  // namespace ingot
