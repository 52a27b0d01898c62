// The cache of keys and values and attention of single tokens on the CPU, against the fp64 reference.
#include "ingot/ops/kv_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/reference/error_of.h"
#include "tests/reference/kv_cache.h"

namespace ingot::test {
namespace {

Tensor as_tensor(std::vector<int32_t>& values) {
  return Tensor(values.data(), DType::i32, {std::ssize(values)});
}

class Decode : public ::testing::TestWithParam<DecodeCase> {
 protected:
  static Buffer run(DecodeProblem& p, KvCache cache) {
    Buffer out(p.c.dtype, {1, p.N, p.c.H, p.c.D});
    Buffer scratch(DType::f32, {attention_decode_scratch(p.shape())});
    Stream stream;
    attention_decode({.out = out,
                      .q = p.queries(p.rows),
                      .cache = cache,
                      .places = as_tensor(p.c.places),
                      .longest = p.longest},
                     {.scale = p.scale, .window = p.c.window}, scratch, stream);
    return out;
  }
};

TEST_P(Decode, EqualsTheReference) {
  DecodeProblem p(GetParam());
  const Doubles want = p.want();
  const Doubles want_k = DecodeProblem::appended(p.k, p.keys(p.rows), p.c.places);
  const Doubles want_v = DecodeProblem::appended(p.v, p.values(p.rows), p.c.places);
  const KvCache cache{p.k, p.v};
  Stream stream;
  append_to_cache(cache, p.keys(p.rows), p.values(p.rows), as_tensor(p.c.places), stream);
  expect_close(p.k, want_k, 0, "k");
  expect_close(p.v, want_v, 0, "v");
  expect_close(run(p, cache), want, p.tolerance(), "out");
}

TEST_P(Decode, TokensDoNotDependOnEachOther) {
  const DecodeProblem all(GetParam());
  expect_independent_tokens(GetParam(), [&](DecodeProblem& p) { return run(p, {all.k, all.v}); });
}

INSTANTIATE_TEST_SUITE_P(Cases, Decode, ::testing::ValuesIn(decode_cases()), decode_case_name);

TEST(KvCacheChecks, NameWhatIsWrong) {
  DecodeProblem p(decode_cases()[1]);
  const KvCache cache{p.k, p.v};
  Stream stream;
  const auto message = [&](std::vector<int32_t> places) -> std::string {
    return error_of(
        [&] { append_to_cache(cache, p.keys(p.rows), p.values(p.rows), as_tensor(places), stream); });
  };
  EXPECT_THAT(message({1, 2, 120}),
              ::testing::HasSubstr("place 120 of token 2 is outside of a cache of 120"));
  EXPECT_THAT(message({1, 2}), ::testing::HasSubstr("places must be i32 (3)"));
}

}  // namespace
}  // namespace ingot::test
