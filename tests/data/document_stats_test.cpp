#include "ingot/data/document_stats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ingot/core/file.h"
#include "ingot/data/corpus.h"
#include "tests/reference/temporary_folder.h"

namespace ingot {
namespace {
using ::testing::ElementsAre;

DocumentStats stats_of(int64_t documents, int64_t different, size_t most_hashes) {
  DocumentStats stats(5, most_hashes);
  for (int64_t i = 0; i < documents; ++i) {
    const uint64_t hash = 0x9e3779b97f4a7c15u * static_cast<uint64_t>(i % different + 1);
    stats.add(10, hash ^ hash >> 32, [&] { return DocumentStats::Sample{.name = std::to_string(i)}; });
  }
  return stats;
}

TEST(DocumentStats, DuplicatesAreCountedExactlyAndEstimatedInBoundedMemory) {
  const auto exact = stats_of(3000, 1000, 1000).duplicates();
  EXPECT_EQ(exact.one_in, 1);
  EXPECT_EQ(exact.documents, 2000);
  EXPECT_EQ(exact.length, 20'000);
  EXPECT_EQ(stats_of(1000, 1000, 1000).duplicates().documents, 0);
  const auto estimate = stats_of(300'000, 100'000, 2000).duplicates();
  EXPECT_GE(estimate.one_in, 64);
  EXPECT_LE(estimate.one_in, 128);
  // About 1,000 of 100,000 different hashes are compared, so the standard deviation is 3 %.
  EXPECT_NEAR(static_cast<double>(estimate.documents), 200'000, 5 * 0.03 * 200'000);
}

TEST(DocumentStats, SamplesAreDifferentDocumentsInOrder) {
  const DocumentStats stats = stats_of(1000, 1000, 1000);
  const auto samples = stats.samples();
  ASSERT_EQ(samples.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(samples[i].name, std::to_string(samples[i].index));
    EXPECT_EQ(samples[i].length, 10);
    EXPECT_TRUE(i == 0 || samples[i].index > samples[i - 1].index);
  }
  EXPECT_GT(samples.back().index, 100) << "not the first ones";
}

TEST(DocumentStats, TextIsCountedByDocumentWithTheHashOfTheCorpus) {
  const TemporaryFolder folder;
  const std::string file = folder.path() / "a.jsonl";
  write_file(file,
             "{\"text\": \"one\"}\n{\"text\": \"three\\nlines\"}\n{\"text\": \"one\"}\n{\"text\": \"\"}\n");
  const TextStats stats = text_stats(std::vector{file}, "text", 9);
  EXPECT_EQ(stats.content_hash, load_documents(std::vector{file}).content_hash());
  EXPECT_EQ(stats.documents.documents(), 3);
  EXPECT_EQ(stats.documents.length(), 17);
  EXPECT_EQ(stats.documents.shortest(), 3);
  EXPECT_EQ(stats.documents.longest(), 11);
  EXPECT_EQ(stats.documents.bins()[2].documents, 2);  // 2 to 3
  EXPECT_EQ(stats.documents.bins()[4].length, 11);    // 8 to 15
  EXPECT_EQ(stats.documents.duplicates().documents, 1);
  EXPECT_EQ(stats.documents.duplicates().length, 3);
  ASSERT_EQ(stats.documents.samples().size(), 3u);
  EXPECT_EQ(stats.documents.samples()[1].begin, "three lines");
  EXPECT_EQ(stats.documents.samples()[1].name, file + ":2");
}

TEST(DocumentStats, TokensAreCountedByDocumentWhereverTheyBegin) {
  TokenSource marked;  // 9 is the end-of-text token
  marked.add(std::vector<uint32_t>{9, 1, 2, 9, 3, 9, 9, 1, 2});
  marked.set_documents({.end_of_text = 9, .positions = {}});
  TokenSource listed;
  listed.add(std::vector<uint32_t>{1, 2, 3, 1, 2});
  listed.set_documents({.end_of_text = {}, .positions = {0, 2, 3}});
  for (const TokenSource* source : {&marked, &listed}) {
    const DocumentStats stats = token_stats(*source, nullptr, 5);
    EXPECT_EQ(stats.documents(), 3);
    EXPECT_EQ(stats.length(), 5);
    EXPECT_EQ(stats.duplicates().documents, 1);
    std::vector<std::string> begins;
    for (const auto& sample : stats.samples()) begins.push_back(sample.begin);
    EXPECT_THAT(begins, ElementsAre("1 2", "3", "1 2"));
  }
  // A document that is longer than what is read at one time is still one.
  TokenSource large;
  large.add(std::vector<uint32_t>(200'000, 1));
  large.set_documents({.end_of_text = 9, .positions = {}});
  EXPECT_EQ(token_stats(large, nullptr, 1).longest(), 200'000);
  EXPECT_EQ(token_stats(large, nullptr, 1).documents(), 1);
}

}  // namespace
}  // namespace ingot
