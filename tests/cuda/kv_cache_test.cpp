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

TEST_P(CudaDecode, TokensDoNotDependOnEachOther) {
  expect_independent_tokens(GetParam(), [&](const DecodeProblem& p) { return run(p, false); });
}

INSTANTIATE_TEST_SUITE_P(Cases, CudaDecode, ::testing::ValuesIn(decode_cases()), decode_case_name);

}  // namespace
}  // namespace ingot::test
