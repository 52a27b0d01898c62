// The cache of keys and values and attention of single tokens on a device, against the fp64 reference.
#include "ingot/ops/kv_cache.h"

#include <gmock/gmock.h>

#include "tests/cuda/on_device.h"
#include "tests/reference/kv_cache.h"

namespace ingot::test {
namespace {

class CudaDecode : public ::testing::TestWithParam<DecodeCase>, protected OnCuda {
 protected:
  Buffer run(const DecodeProblem& p, bool appends) {
    const OnDevice rows = put(p.rows), k = put(p.k), v = put(p.v), places = put(integers(p.c.places));
    const OnDevice out = result(p.c.dtype, {1, p.N, p.c.H, p.c.D});
    const int64_t words = attention_decode_scratch(p.shape(), Device::kCuda);
    const OnDevice scratch = result(DType::f32, {std::max<int64_t>(words, 1)});
    const KvCache cache{k, v};
    if (appends) {
      append_to_cache(cache, p.keys(rows), p.values(rows), places, stream);
      expect_close(k.to_host(), DecodeProblem::appended(p.k, p.keys(p.rows), p.c.places), 0, "k");
      expect_close(v.to_host(), DecodeProblem::appended(p.v, p.values(p.rows), p.c.places), 0, "v");
    }
    attention_decode(
        {.out = out, .q = p.queries(rows), .cache = cache, .places = places, .longest = p.longest},
        {.scale = p.scale, .window = p.c.window}, scratch, stream);
    return out.to_host();
  }
};

TEST_P(CudaDecode, EqualsTheReference) {
  const DecodeProblem p(GetParam());
  expect_close(run(p, true), p.want(), p.tolerance(), "out");
}

// The bits of a token's result depend on no other token of the call.
TEST_P(CudaDecode, TokensDoNotDependOnEachOther) {
  const DecodeProblem all(GetParam());
  const Buffer together = run(all, false);
  const size_t row_bytes = together.tensor().bytes() / static_cast<size_t>(all.N);
  for (int64_t n = 0; n < all.N; ++n) {
    DecodeProblem alone(GetParam());
    std::ranges::fill(alone.c.places, -1);
    alone.c.places[static_cast<size_t>(n)] = all.c.places[static_cast<size_t>(n)];
    alone.longest = std::max<int64_t>(1, all.c.places[static_cast<size_t>(n)] % all.c.positions + 1);
    const Buffer got = run(alone, false);
    const auto at = [&](const Buffer& b) {
      return static_cast<const char*>(b.tensor().data) + static_cast<size_t>(n) * row_bytes;
    };
    EXPECT_EQ(std::memcmp(at(got), at(together), row_bytes), 0) << n;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, CudaDecode, ::testing::ValuesIn(decode_cases()), decode_case_name);

}  // namespace
}  // namespace ingot::test
