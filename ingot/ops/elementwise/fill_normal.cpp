#include "ingot/ops/fill_normal.h"

#include <algorithm>
#include <vector>

#include "ingot/core/copy.h"
#include "ingot/core/dispatch.h"
#include "ingot/core/philox.h"

namespace ingot {
namespace {

// A prime, so that rows of the usual widths do not all begin at the same place of the sequence.
constexpr int64_t kNormals = 65521;
constexpr RandomKey kNormalsKey{.seed = 1, .purpose = Purpose::kInit};

}  // namespace

void fill_normal(const Tensor& t, float scale, Stream& stream) {
  INGOT_CHECK(t.is_contiguous(), "fill_normal: {} is strided", t.shape.to_string());
  INGOT_DISPATCH(t.dtype, T, {
    std::vector<T> normals(static_cast<size_t>(std::min(kNormals, t.elements())));
    for (size_t i = 0; i < normals.size(); ++i) normals[i] = T(scale * random_normal(kNormalsKey, i));
    for (int64_t at = 0; at < t.elements(); at += kNormals) {
      const Shape some{std::min(kNormals, t.elements() - at)};
      copy(Tensor(t.as<T>() + at, t.dtype, some, t.device), Tensor(normals.data(), t.dtype, some), stream);
    }
    synchronize(stream);  // the copies read `normals`
  });
}

}  // namespace ingot
