#include "ingot/data/builtin_corpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "ingot/core/error.h"
#include "tests/reference/error_of.h"
#include "tests/reference/temporary_folder.h"

namespace ingot::test {
namespace {
namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(StripLicences, RemovesLicenceBlocksOnly) {
  EXPECT_EQ(strip_licences(
                "// <x> -*- C++ -*-\n\n// Copyright (C) 2022\n// all rights\n\n// without any WARRANTY\n\n"
                "/*\n * Copyright (c) 1994\n */\n\n/** @file x\n */\n\nint a;\n"),
            "// <x> -*- C++ -*-\n\n/** @file x\n */\n\nint a;\n");
  EXPECT_EQ(strip_licences("int a; // license\n  // fine\n"), "int a; // license\n  // fine\n");
  EXPECT_EQ(strip_licences("/* one-line licence */\nint a;"), "int a;");
  EXPECT_EQ(strip_licences("/* never closed: license"), "");
  EXPECT_EQ(strip_licences("// last line, no newline"), "// last line, no newline");
  EXPECT_EQ(strip_licences(""), "");
}

class Headers : public FolderTest {
 protected:
  void write(const std::string& name, const std::string& bytes) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
  }
  static std::vector<std::string> names(const Documents& documents) {
    std::vector<std::string> all;
    for (const Document& document : documents) all.push_back(document.name);
    return all;
  }
};

TEST_F(Headers, FollowTheRulesOnASmallTree) {
  const std::string shared_line = "constexpr int a_line_of_forty_characters = 1234567;\n";
  write("vector", "// Copyright\n\n#include <bits/v.h>\n  " + shared_line + "int v;\n");
  write("bits/v.h", "int bits;\n");
  write("bits/copy.h", "int bits;\n");
  write("tr1/vector", "int old;\n");
  write("experimental/x", "int x;\n");
  write("regex", shared_line + "int r;\n");
  write("bits/fs_path.h", "int path;\n");
  write("__chrono/day.h", "int day;\n");
  write("binary", std::string("a\0b", 3));
  write("latin", "\xe9");
  const BuiltinCorpus corpus = collect_cpp_headers(folder_);
  EXPECT_THAT(names(corpus.train), ElementsAre("bits/copy.h", "vector"));
  EXPECT_THAT(names(corpus.val), ElementsAre("__chrono/day.h", "bits/fs_path.h", "regex"));
  EXPECT_EQ(corpus.train[1].text, "// FILE: vector\n#include <bits/v.h>\nint v;\n");
  EXPECT_EQ(corpus.val[2].text, "// FILE: regex\n" + shared_line + "int r;\n");
  EXPECT_EQ(corpus.duplicated_bytes, static_cast<int64_t>(shared_line.size()) + 2);
  EXPECT_EQ(corpus.licence_bytes, 14);
}

TEST_F(Headers, MissingCompilerIsADataErrorWithTheFix) {
  EXPECT_THAT(data_error([&] { load_cpp_headers("/nonexistent/compiler"); }),
              testing::AllOf(HasSubstr("/nonexistent/compiler"), HasSubstr("apt-get install g++")));
}

class CppHeaders : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const auto begin = std::chrono::steady_clock::now();
    corpus = load_cpp_headers();
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  static void TearDownTestSuite() { corpus = {}; }
  inline static BuiltinCorpus corpus;
  inline static double seconds = 0;
};

TEST_F(CppHeaders, OfThisMachineShareNoLongLine) {
  std::printf("%s in %.2f s; of %lld bytes, %lld licences, %lld duplicates\n", corpus.describe().c_str(),
              seconds, static_cast<long long>(corpus.headers_bytes),
              static_cast<long long>(corpus.licence_bytes), static_cast<long long>(corpus.duplicated_bytes));
  const auto train = static_cast<double>(corpus.train.size_bytes()),
             val = static_cast<double>(corpus.val.size_bytes());
  EXPECT_GT(train, 3e6);
  EXPECT_GT(val / (train + val), 0.03);
  EXPECT_LT(val / (train + val), 0.25);
  EXPECT_THAT(corpus.compiler, HasSubstr("version"));
  std::set<std::string> long_lines;
  const auto each_line = [](const Documents& documents, auto&& f) {
    for (const Document& document : documents) {
      ASSERT_TRUE(document.text.starts_with("// FILE: " + document.name + "\n"));
      std::istringstream text{std::string(document.text)};
      for (std::string line; std::getline(text, line);) {
        line.erase(0, line.find_first_not_of(" \t"));
        line.erase(line.find_last_not_of(" \t") + 1);
        if (line.size() >= 40) f(line);
      }
    }
  };
  each_line(corpus.val, [&](const std::string& line) { long_lines.insert(line); });
  each_line(corpus.train, [&](const std::string& line) {
    ASSERT_FALSE(long_lines.contains(line)) << "in both parts: " << line;
    ASSERT_THAT(line, ::testing::Not(HasSubstr("Copyright (C)")));
  });
}

TEST_F(CppHeaders, AreNamedByASpec) {
  EXPECT_EQ(builtin_documents("builtin:cpp-headers:val").content_hash(), corpus.val.content_hash());
  const Documents all = load_documents(std::vector<std::string>{"builtin:cpp-headers"});
  EXPECT_EQ(all.size(), corpus.train.size() + corpus.val.size());
  const DocumentSplit parts = load_split(std::vector<std::string>{"builtin:cpp-headers"}, 0.1);
  EXPECT_EQ(parts.val.content_hash(), corpus.val.content_hash());
  EXPECT_THROW(builtin_documents("builtin:cpp-headers:test"), Error);
}

TEST_F(CppHeaders, HaveYardsticks) {
  for (const Yardstick& y : compression_yardsticks(corpus.val).measured) {
    std::printf("%s: %.3f bits per byte\n", y.name.c_str(), y.bits_per_byte);
    EXPECT_GT(y.bits_per_byte, 0.3);
    EXPECT_LT(y.bits_per_byte, 3);
  }
}

TEST(Yardsticks, EqualTheSizesOfTheToolsThemselves) {
  Documents documents;
  documents.add("a", std::string(50'000, 'a'));
  documents.add("b", std::string(50'000, 'b'));
  const std::vector<Yardstick> yardsticks = compression_yardsticks(documents).measured;
  if (std::system("command -v gzip >/dev/null") == 0) {
    ASSERT_FALSE(yardsticks.empty());
    EXPECT_EQ(yardsticks[0].name, "gzip -9");
    const double compressed_bytes = yardsticks[0].bits_per_byte * 100'000 / 8;
    EXPECT_GT(compressed_bytes, 50);
    EXPECT_LT(compressed_bytes, 400);
    EXPECT_DOUBLE_EQ(compressed_bytes, std::round(compressed_bytes));
  }
  EXPECT_TRUE(compression_yardsticks(Documents{}).measured.empty());
}

}  // namespace
}  // namespace ingot::test
