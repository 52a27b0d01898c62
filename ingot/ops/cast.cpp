#include "ingot/ops/cast.h"

#include "ingot/core/parallel.h"
#include "ingot/ops/dispatch.h"
#include "ingot/ops/vec.h"

namespace ingot {

void cast(const Tensor& to, const Tensor& from, Stream& stream) {
  const Span span(stream.trace, "cast");
  INGOT_CHECK(to.shape == from.shape && to.is_contiguous() && from.is_contiguous(),
              "cast: shapes must be equal and contiguous, got {} and {}", to.shape.to_string(),
              from.shape.to_string());
  INGOT_DISPATCH(from.dtype, From, {
    INGOT_DISPATCH(to.dtype, To, {
      parallel_for(to.elements(), 1 << 14, [&](int64_t begin, int64_t end) {
        const From* source = from.as<From>() + begin;
        To* target = to.as<To>() + begin;
        vec::for_each(end - begin, [&](auto load, auto store) { store(target, load(source)); });
      });
    });
  });
}

}  // namespace ingot
