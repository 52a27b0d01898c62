// The feed of a device: the first rows of documents, which follow from the starts that the loader has.
#include "ingot/train/device_feed.h"

#include <gmock/gmock.h>

#include "ingot/core/copy.h"
#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/staging.h"

namespace ingot {
namespace {

using ::testing::ElementsAre;
constexpr int64_t kRows = 2, kContext = 256;

class FeedOfDocuments : public ::testing::Test {
 protected:
  // Sends a batch in which documents begin at these tokens of every row, in addition to 0; returns its first
  // rows.
  std::vector<int32_t> send(const std::vector<int64_t>& begins) {
    std::vector<int32_t> tokens(kRows * kContext), starts(kRows * kContext);
    for (int64_t i = 0; i < kRows * kContext; ++i) {
      const int64_t t = i % kContext;
      for (const int64_t begin : begins)
        if (begin <= t) starts[static_cast<size_t>(i)] = static_cast<int32_t>(begin);
    }
    const Shape shape{kRows, kContext};
    const Batch batch{.tokens = Tensor(tokens.data(), DType::i32, shape),
                      .targets = Tensor(tokens.data(), DType::i32, shape),
                      .doc_start = Tensor(starts.data(), DType::i32, shape)};
    feed.begin_step(0);
    const MicroBatch sent = feed.send(batch, stream);
    EXPECT_TRUE(sent.doc_start);
    synchronize(stream);  // the next step has the same slot
    if (!sent.cu_seqlens) return {};
    const Tensor host = staging.read(sent.cu_seqlens, stream);
    const int32_t* first = host.as<int32_t>();
    return {first, first + host.elements()};
  }
  Stream stream = cuda::make_stream();
  Staging staging;
  DeviceFeed feed{
      Device::kCuda, {.batch = kRows, .context = kContext, .vocab_size = 8, .document_mask = true}, 1};
};

TEST_F(FeedOfDocuments, SendsTheirFirstRows) {
  EXPECT_THAT(send({}), ElementsAre(0, 256, 512));
  EXPECT_THAT(send({100}), ElementsAre(0, 100, 256, 356, 512));
}

// Plans and graphs depend on how many documents there is room for, so that number does not shrink.
TEST_F(FeedOfDocuments, KeepsRoomForPowersOfTwo) {
  EXPECT_EQ(send({1, 200}).size(), 9u);
  EXPECT_THAT(send({}), ElementsAre(0, 256, 512, 512, 512, 512, 512, 512, 512));
}

TEST_F(FeedOfDocuments, LeavesManyShortOnesToTheMask) {
  EXPECT_THAT(send({1, 2, 3}).size(), 9u);  // 512 / 64 documents
  EXPECT_TRUE(send({1, 2, 3, 4}).empty());
  EXPECT_THAT(send({}).size(), 9u);
}

}  // namespace
}  // namespace ingot
