#include "ingot/core/nvtx.h"

#ifdef INGOT_WITH_CUDA
#include <nvtx3/nvToolsExt.h>
#endif

#include <algorithm>
#include <array>

namespace ingot {

#ifdef INGOT_WITH_CUDA
namespace {

class NvtxListener final : public SpanListener {
 public:
  void begin(std::string_view name) override {
    std::array<char, 48> text{};
    std::copy_n(name.data(), std::min(name.size(), text.size() - 1), text.data());
    nvtxRangePushA(text.data());
  }
  void end() override { nvtxRangePop(); }
};

}  // namespace

std::unique_ptr<SpanListener> nvtx_listener() { return std::make_unique<NvtxListener>(); }
#else
std::unique_ptr<SpanListener> nvtx_listener() { return nullptr; }
#endif

}  // namespace ingot
