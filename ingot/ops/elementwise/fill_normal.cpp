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
  with_dtype(t.dtype, __func__, [&]<typename T>() {
    std::vector<T> normals(static_cast<size_t>(std::min(kNormals, t.elements())));
    for (size_t i = 0; i < normals.size(); ++i) normals[i] = T(scale * random_normal(kNormalsKey, i));
    const auto range = [&](int64_t first, int64_t count) {
      return Tensor(t.as<T>() + first, t.dtype, {count}, t.device);
    };
    int64_t done = std::ssize(normals);
    copy(range(0, done), Tensor(normals.data(), t.dtype, {done}), stream);
    // The sequence repeats, so the rest comes from the tensor itself.
    for (; done < t.elements(); done *= 2) {
      const int64_t more = std::min(done, t.elements() - done);
      copy(range(done, more), range(0, more), stream);
    }
    synchronize(stream);  // the first copy reads `normals`
  });
}

}  // namespace ingot
