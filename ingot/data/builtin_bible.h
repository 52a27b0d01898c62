// The built-in corpus "builtin:bible": the King James Bible from the package bible-kjv of Debian and
// Ubuntu. The text is in the public domain.
//
// Rules: the program `bible` prints all verses with their references. Each book is one document. Every
// chapter begins with a heading ("Genesis 1") between blank lines; each verse is one line, without its
// reference. Validation is ten whole books of different kinds, 9 % of the text. None of them is in the
// training text, although the Bible quotes itself.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "ingot/data/corpus.h"

namespace ingot {

inline constexpr std::string_view kBibleCorpus = "builtin:bible";

struct BibleCorpus {
  Documents train, val;
  int64_t verses = 0;
  uint64_t hash = 0;  // covers train and val

  // "66 books, 31102 verses of the King James Bible (package bible-kjv, public domain): 3.77 MB train, ..."
  std::string describe() const;
};

// Runs `program` (if empty: `bible`). kData error, with the fix, if it is not installed or prints
// something else.
BibleCorpus load_bible(const std::string& program = {});

// Applies only the rules, to what `bible -f gen1:1-rev22:21` prints ("Ge1:1 In the beginning ...", one
// verse per line). kData error, naming the line, for anything else.
BibleCorpus collect_bible(std::string_view printed);

}  // namespace ingot
