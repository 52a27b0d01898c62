#include "ingot/ops/loss/cross_entropy_tile.h"

#include <gtest/gtest.h>

#include "tests/reference/cross_entropy.h"

namespace ingot::test {
namespace {

// Compares loss, log-sum-exp, top-1 and gradient of rows that are read tile by tile with those of whole rows.
TEST(CrossEntropyTile, TilesOfAnyWidthGiveTheLossOfTheWholeRow) {
  const int64_t N = 6, V = 75, Vp = 80;
  Stream stream;
  Buffer logits = random_tensor(DType::f32, {N, Vp}, 1, 6.0);
  const std::vector<int32_t> ids = {0, 74, kIgnoreIndex, 33, 16, 5};
  const Tensor targets(const_cast<int32_t*>(ids.data()), DType::i32, {N});
  const Doubles values = to_doubles(logits);
  for (LogitCap cap : {LogitCap::kNone, LogitCap::kTanh, LogitCap::kSigmoid})
    for (int64_t width : {1, 7, 16, 33, 80}) {
      CrossEntropyConfig config{.vocab = V, .cap = cap, .cap_a = 15, .cap_b = 5, .cap_c = 7.5f};
      config.grad_scale = 0.5f;
      config.label_smoothing = 0.05f;
      config.z_loss = 1e-3f;
      std::vector<TileRow> row_memory(N);
      const Tensor rows(row_memory.data(), DType::u8, {N, sizeof(TileRow)});
      Buffer losses(DType::f32, {N}), lse(DType::f32, {N});
      std::vector<uint8_t> correct(N);
      const auto tile_at = [&](int64_t first) {
        Buffer tile(DType::f32, {N, std::min(width, Vp - first)});
        Doubles part;
        for (int64_t n = 0; n < N; ++n)
          for (int64_t j = first; j < std::min(first + width, Vp); ++j)
            part.push_back(values[static_cast<size_t>(n * Vp + j)]);
        assign(tile, part);
        return tile;
      };
      cross_entropy_begin(rows, stream);
      for (int64_t v = 0; v < Vp; v += width)
        cross_entropy_fold(rows, {.logits = tile_at(v), .first = v, .targets = targets}, config, stream);
      cross_entropy_finish(losses, Tensor(correct.data(), DType::u8, {N}), lse, rows, targets, config,
                           stream);
      expect_close(losses, cross_entropy_reference(values, ids, config), 4 * 32 * 0x1p-24, "loss");
      const Doubles want = cross_entropy_gradient_reference(values, ids, config);
      for (int64_t v = 0; v < Vp; v += width) {
        const Buffer tile = tile_at(v);
        cross_entropy_tile_gradient(tile, {.logits = tile, .first = v, .lse = lse, .targets = targets},
                                    config, stream);
        const Doubles got = to_doubles(tile);
        const size_t w = static_cast<size_t>(tile.tensor().dim(1));
        for (size_t i = 0; i < got.size(); ++i) {
          const size_t at = i / w * Vp + static_cast<size_t>(v) + i % w;
          ASSERT_NEAR(got[i], 0.5 * want[at], 2e-6) << "width " << width << " at " << at;
        }
      }
      for (size_t n = 0; n < N; ++n) {
        const auto row = values.begin() + static_cast<int64_t>(n) * Vp;
        EXPECT_EQ(correct[n], ids[n] == std::max_element(row, row + V) - row);
      }
    }
}

// Compares the gradient computed in place from exponentials stored in 16 bits with that of whole rows. The
// exponential and the gradient are rounded once each: by 2^-11 of the value, and by 2^-9 (bf16) or 2^-11
// (f16), plus 2^-25 for f16's subnormals.
TEST(CrossEntropyTile, KeptExponentialsGiveTheGradientOfTheWholeRow) {
  const int64_t N = 6, V = 75, Vp = 80;
  Stream stream;
  Buffer logits = random_tensor(DType::f32, {N, Vp}, 1, 6.0);
  const std::vector<int32_t> ids = {0, 74, kIgnoreIndex, 33, 16, 5};
  const Tensor targets(const_cast<int32_t*>(ids.data()), DType::i32, {N});
  const Doubles values = to_doubles(logits);
  const auto check = [&](const CrossEntropyConfig& config, DType dtype, int64_t width) {
    std::vector<TileRow> row_memory(N);
    const Tensor rows(row_memory.data(), DType::u8, {N, sizeof(TileRow)});
    Buffer losses(DType::f32, {N}), lse(DType::f32, {N}), memory(dtype, {N, Vp});
    Buffer references(DType::f32, {(Vp + width - 1) / width, N});
    const KeptExponentials kept{.values = Tensor(memory.tensor().data, DType::f16, {N, Vp}),
                                .references = references,
                                .tile_columns = width};
    cross_entropy_begin(rows, stream);
    for (int64_t v = 0; v < Vp; v += width) {
      Buffer tile(DType::f32, {N, std::min(width, Vp - v)});
      Doubles part;
      for (int64_t n = 0; n < N; ++n)
        for (int64_t j = v; j < std::min(v + width, Vp); ++j)
          part.push_back(values[static_cast<size_t>(n * Vp + j)]);
      assign(tile, part);
      cross_entropy_fold_and_keep(kept, v / width, rows, {.logits = tile, .first = v, .targets = targets},
                                  config, stream);
    }
    cross_entropy_finish(losses, {}, lse, rows, targets, config, stream);
    expect_close(losses, cross_entropy_reference(values, ids, config), 4 * 32 * 0x1p-24, "loss");
    cross_entropy_kept_gradient(memory, kept, rows, {.lse = lse, .targets = targets}, config, stream);
    const Doubles want = cross_entropy_gradient_reference(values, ids, config), got = to_doubles(memory);
    const double scale = static_cast<double>(config.grad_scale);
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], scale * want[i],
                  scale * ((0x1p-11 + unit_roundoff(dtype)) * std::abs(want[i]) + 0x1p-38) + 2e-6 + 0x1p-25)
          << "width " << width << " at " << i;
  };
  for (LogitCap cap : {LogitCap::kNone, LogitCap::kTanh, LogitCap::kSigmoid})
    for (DType dtype : {DType::bf16, DType::f16})
      for (int64_t width : {1, 7, 16, 33, 80})
        for (float smoothing : {0.0f, 0.05f}) {
          if (smoothing > 0 && cap != LogitCap::kNone) continue;
          CrossEntropyConfig config{.vocab = V, .cap = cap, .cap_a = 90, .cap_b = 5, .cap_c = 7.5f};
          config.grad_scale = 0.5f;
          config.label_smoothing = smoothing;
          config.z_loss = 1e-3f;
          check(config, dtype, width);
        }
}

TEST(CrossEntropyTile, KeptExponentialsRefuseLabelSmoothingWithACap) {
  Stream stream;
  std::vector<TileRow> row_memory(2);
  std::vector<int32_t> ids = {0, 1};
  const Tensor rows(row_memory.data(), DType::u8, {2, sizeof(TileRow)}), targets(ids.data(), DType::i32, {2});
  Buffer memory = zeros(DType::bf16, {2, 4}), references = zeros(DType::f32, {1, 2}),
         lse = zeros(DType::f32, {2});
  const KeptExponentials kept{.values = Tensor(memory.tensor().data, DType::f16, {2, 4}),
                              .references = references,
                              .tile_columns = 4};
  CrossEntropyConfig config{.vocab = 4, .cap = LogitCap::kTanh, .cap_a = 15};
  config.label_smoothing = 0.1f;
  EXPECT_THROW(
      cross_entropy_kept_gradient(memory, kept, rows, {.lse = lse, .targets = targets}, config, stream),
      Error);
}

// Four ranks read a quarter of the columns each, the last of which is only padding. Merged, their rows
// give the results of one rank that reads all columns.
TEST(CrossEntropyTile, PartsMergeIntoTheWholeRow) {
  constexpr int64_t kN = 6, kV = 55, kParts = 4, kPart = 20, kVp = kParts * kPart;
  Stream stream;
  Buffer logits = random_tensor(DType::f32, {kN, kVp}, 1, 6.0);
  const Doubles values = to_doubles(logits);
  std::vector<int32_t> ids = {0, 54, kIgnoreIndex, 33, 20, 19};
  const auto top = [&](size_t n) {
    const auto row = values.begin() + static_cast<int64_t>(n) * kVp;
    return static_cast<int32_t>(std::max_element(row, row + kV) - row);
  };
  ids[3] = top(3);
  const Tensor targets(ids.data(), DType::i32, {kN});
  CrossEntropyConfig config{.vocab = kV, .cap = LogitCap::kTanh, .cap_a = 15};
  config.label_smoothing = 0.05f;
  config.z_loss = 1e-3f;
  std::vector<TileRow> parts(kParts * kN), merged(kN);
  constexpr int64_t kBytes = sizeof(TileRow);
  const Tensor part_rows(parts.data(), DType::u8, {kParts, kN, kBytes});
  const Tensor rows(merged.data(), DType::u8, {kN, kBytes});
  for (int64_t p = 0; p < kParts; ++p) {
    Buffer tile(DType::f32, {kN, kPart});
    Doubles own;
    for (int64_t n = 0; n < kN; ++n)
      for (int64_t j = 0; j < kPart; ++j) own.push_back(values[static_cast<size_t>(n * kVp + p * kPart + j)]);
    assign(tile, own);
    const Tensor own_rows = part_rows.rows(p, p + 1).reshape({kN, kBytes});
    cross_entropy_begin(own_rows, stream);
    cross_entropy_fold(own_rows, {.logits = tile, .first = p * kPart, .targets = targets}, config, stream);
  }
  cross_entropy_merge(rows, part_rows, targets, kPart, stream);
  Buffer losses(DType::f32, {kN}), lse(DType::f32, {kN});
  std::vector<uint8_t> correct(kN);
  cross_entropy_finish(losses, Tensor(correct.data(), DType::u8, {kN}), lse, rows, targets, config, stream);
  expect_close(losses, cross_entropy_reference(values, ids, config), 4 * 32 * 0x1p-24, "loss");
  for (size_t n = 0; n < kN; ++n) EXPECT_EQ(correct[n], ids[n] == top(n)) << n;
  ids[1] = kV;
  EXPECT_THROW(cross_entropy_finish(losses, {}, lse, rows, targets, config, stream), Error);
}

TEST(CrossEntropyTile, AmongEqualLogitsTheLowestIndexIsPredicted) {
  const int64_t N = 1;
  Stream stream;
  for (int32_t target : {0, 3}) {
    std::vector<int32_t> ids = {target};
    const Tensor targets(ids.data(), DType::i32, {N});
    Buffer tile = zeros(DType::f32, {N, 2}), losses(DType::f32, {N}), lse(DType::f32, {N});
    std::vector<TileRow> row_memory(N);
    const Tensor rows(row_memory.data(), DType::u8, {N, sizeof(TileRow)});
    uint8_t correct = 9;
    cross_entropy_begin(rows, stream);
    for (int64_t v : {0, 2})
      cross_entropy_fold(rows, {.logits = tile, .first = v, .targets = targets}, {.vocab = 4}, stream);
    cross_entropy_finish(losses, Tensor(&correct, DType::u8, {N}), lse, rows, targets, {.vocab = 4}, stream);
    EXPECT_EQ(correct, target == 0 ? 1 : 0);
    EXPECT_NEAR(to_doubles(losses)[0], std::log(4.0), 1e-6);
  }
}

}  // namespace
}  // namespace ingot::test
