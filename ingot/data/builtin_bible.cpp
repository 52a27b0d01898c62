#include "ingot/data/builtin_bible.h"

#include <algorithm>
#include <array>
#include <optional>

#include "ingot/core/error.h"
#include "ingot/core/process/child_output.h"

namespace ingot {
namespace {

constexpr size_t kPrintedBytes = size_t{64} << 20;  // upper bound; the actual output is 4.4 MB

struct Book {
  std::string_view name;
  bool is_val = false;
};
constexpr std::array<Book, 66> kBooks = {{
    {"Genesis"},
    {"Exodus"},
    {"Leviticus"},
    {"Numbers"},
    {"Deuteronomy"},
    {"Joshua", true},
    {"Judges"},
    {"Ruth", true},
    {"1 Samuel"},
    {"2 Samuel"},
    {"1 Kings"},
    {"2 Kings"},
    {"1 Chronicles"},
    {"2 Chronicles"},
    {"Ezra"},
    {"Nehemiah"},
    {"Esther", true},
    {"Job"},
    {"Psalm"},
    {"Proverbs"},
    {"Ecclesiastes", true},
    {"Song of Solomon"},
    {"Isaiah"},
    {"Jeremiah"},
    {"Lamentations"},
    {"Ezekiel"},
    {"Daniel", true},
    {"Hosea"},
    {"Joel"},
    {"Amos"},
    {"Obadiah"},
    {"Jonah", true},
    {"Micah"},
    {"Nahum"},
    {"Habakkuk"},
    {"Zephaniah"},
    {"Haggai"},
    {"Zechariah"},
    {"Malachi"},
    {"Matthew"},
    {"Mark"},
    {"Luke"},
    {"John", true},
    {"Acts"},
    {"Romans"},
    {"1 Corinthians"},
    {"2 Corinthians"},
    {"Galatians", true},
    {"Ephesians", true},
    {"Philippians"},
    {"Colossians"},
    {"1 Thessalonians"},
    {"2 Thessalonians"},
    {"1 Timothy"},
    {"2 Timothy"},
    {"Titus"},
    {"Philemon"},
    {"Hebrews"},
    {"James", true},
    {"1 Peter"},
    {"2 Peter"},
    {"1 John"},
    {"2 John"},
    {"3 John"},
    {"Jude"},
    {"Revelation"},
}};

constexpr std::string_view kDigits = "0123456789";

struct Verse {
  std::string_view book, chapter, text;
};

// Parses "1Sm2:3 And the LORD ...". The book's short name ends before the chapter number. Returns nullopt
// for other lines.
std::optional<Verse> parse_verse(std::string_view line) {
  const size_t space = line.find(' '), colon = line.find(':');
  if (space == std::string_view::npos || colon >= space || colon == 0) return std::nullopt;
  const size_t letter = line.substr(0, colon).find_last_not_of(kDigits);
  if (letter == std::string_view::npos || letter + 1 == colon) return std::nullopt;
  const std::string_view number = line.substr(colon + 1, space - colon - 1);
  if (number.empty() || number.find_first_not_of(kDigits) != std::string_view::npos) return std::nullopt;
  return Verse{line.substr(0, letter + 1), line.substr(letter + 1, colon - letter - 1),
               line.substr(space + 1)};
}

[[noreturn]] void refuse(const std::string& why) {
  fail(ErrorKind::kData,
       "{}: `bible -f gen1:1-rev22:21` did not print the King James Bible: {}; install the package bible-kjv "
       "(apt-get install bible-kjv) or give your own text",
       kBibleCorpus, why);
}

}  // namespace

BibleCorpus collect_bible(std::string_view printed) {
  BibleCorpus corpus;
  size_t book = 0;  // index into kBooks plus 1; 0 before the first verse
  std::string book_key, chapter, text;
  const auto end_book = [&] {
    if (book > 0)
      (kBooks[book - 1].is_val ? corpus.val : corpus.train)
          .add(std::string(kBooks[book - 1].name), std::move(text));
    text.clear();
  };
  for (size_t begin = 0; begin < printed.size();) {
    const size_t end = std::min(printed.find('\n', begin), printed.size());
    const std::string_view line = printed.substr(begin, end - begin);
    begin = end + 1;
    const std::optional<Verse> verse = parse_verse(line);
    if (!verse) refuse(fmt::format("line {} is no verse: '{}'", corpus.verses + 1, line.substr(0, 40)));
    ++corpus.verses;
    const bool begins_book = verse->book != book_key;
    if (begins_book) {
      end_book();
      if (++book > kBooks.size()) refuse(fmt::format("it has more than {} books", kBooks.size()));
      book_key = verse->book;
    }
    if (begins_book || verse->chapter != chapter) {
      chapter = verse->chapter;
      text += fmt::format("{}{} {}\n\n", begins_book ? "" : "\n", kBooks[book - 1].name, chapter);
    }
    text.append(verse->text).append("\n");
  }
  if (book != kBooks.size()) refuse(fmt::format("it has {} books, {} were expected", book, kBooks.size()));
  end_book();
  corpus.hash = corpus.train.content_hash() ^ (corpus.val.content_hash() * 0x9E3779B97F4A7C15u);
  return corpus;
}

BibleCorpus load_bible(const std::string& program) {
  const std::string name = program.empty() ? "bible" : program;
  const std::optional<std::string> printed = program_output({name, "-f", "gen1:1-rev22:21"}, kPrintedBytes);
  if (!printed)
    fail(ErrorKind::kData,
         "{}: the program '{}' is not installed or failed; install it (apt-get install bible-kjv), give your "
         "own "
         "text, or train on {} (the preset demo-headers)",
         kBibleCorpus, name, "builtin:cpp-headers");
  return collect_bible(*printed);
}

std::string BibleCorpus::describe() const {
  return fmt::format(
      "{} books, {} verses of the King James Bible (package bible-kjv, public domain): {:.2f} MB train, "
      "{:.2f} MB "
      "validation, hash {:016x}",
      train.size() + val.size(), verses, static_cast<double>(train.size_bytes()) * 1e-6,
      static_cast<double>(val.size_bytes()) * 1e-6, hash);
}

}  // namespace ingot
