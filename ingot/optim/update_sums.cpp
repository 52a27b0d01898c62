#include "ingot/optim/update_sums.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "ingot/core/copy.h"
#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/parallel.h"
#include "ingot/optim/cuda_step_check.h"
#include "ingot/optim/cuda_update.h"
#include "ingot/optim/sum_of_squares.h"

namespace ingot {
namespace {

// The sums of parameters on the CPU: numbers per range of elements, added in order of the ranges, so that the
// sums do not depend on which thread computed them.
class CpuSums final : public UpdateSums {
 public:
  explicit CpuSums(std::vector<const OptimParam*> params) {
    for (const OptimParam* param : params) {
      const int64_t n = param->elements();
      for (int64_t i = 0; i < n; i += kRangeElements)
        ranges_.push_back({param, {i, std::min(i + kRangeElements, n)}});
      end_.push_back(ranges_.size());
    }
    squares_.resize(ranges_.size());
    totals_.resize(ranges_.size());
  }

  double grad_norm(Stream& /*stream*/) override {
    parallel_for(std::ssize(ranges_), 1, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) {
        const auto& [param, range] = ranges_[static_cast<size_t>(k)];
        const int64_t n = std::min(range.end, param->counted_elements()) - range.begin;
        squares_[static_cast<size_t>(k)] = n > 0 ? sum_of_squares(param->g.as<float>() + range.begin, n) : 0;
      }
    });
    return std::sqrt(std::accumulate(squares_.begin(), squares_.end(), 0.0));
  }
  Tensor squares(Stream& /*stream*/) override { return {}; }
  void place_totals(ParamUpdate& update, size_t param) override {
    const size_t begin = param == 0 ? 0 : end_[param - 1];
    update.totals = std::span(totals_).subspan(begin, end_[param] - begin);
  }
  std::vector<RangeTotals> totals(Stream& /*stream*/) override {
    std::vector<RangeTotals> sums(end_.size());
    for (size_t i = 0, k = 0; i < sums.size(); ++i)
      for (; k < end_[i]; ++k) {
        sums[i].weight_squares += totals_[k].weight_squares;
        sums[i].grad_squares += totals_[k].grad_squares;
        sums[i].update_squares += totals_[k].update_squares;
        sums[i].update_dot_weight += totals_[k].update_dot_weight;
      }
    return sums;
  }
  int64_t non_finite() const override {
    int64_t count = 0;
    for (const RangeTotals& totals : totals_) count += totals.non_finite;
    return count;
  }

 private:
  struct ParamRange {
    const OptimParam* param;
    Range range;
  };
  std::vector<ParamRange> ranges_;   // those of all parameters, in order
  std::vector<size_t> end_;          // the end of each parameter's ranges
  std::vector<double> squares_;      // for each range the sum of the squared gradients
  std::vector<RangeTotals> totals_;  // for each range those of the last step
};

constexpr int64_t kTotals = 4;  // numbers in a row of totals

// The sums of parameters on a CUDA device: the norm takes two kernels for all of them.
class CudaSums final : public UpdateSums {
 public:
  CudaSums(const std::vector<const OptimParam*>& params, Backing backing)
      : first_row_(rows_of(params)),
        memory_(arena_for("optimizer sums", Memory::kDevice, backing)),
        pinned_(arena_for("optimizer sums of the host", Memory::kPinned, backing)) {
    if (backing == Backing::kAddresses) return;
    there_ = lay_out(memory_);
    here_ = lay_out(pinned_);
    auto* range = reinterpret_cast<cuda::SquareRange*>(here_.ranges.as<uint8_t>());
    for (const OptimParam* param : params) {
      const int64_t n = param->counted_elements();
      *range++ = {param->g.as<float>(), n};
      longest_ = std::max(longest_, n);
    }
  }

  double grad_norm(Stream& stream) override {
    copy(here_.squares, squares(stream), stream);
    synchronize(stream);
    std::array<double, cuda::kSquareParts> sums;
    std::copy_n(here_.squares.as<float>(), sums.size(), sums.begin());
    return std::sqrt(cuda::sum_of_parts(sums.data()));
  }
  Tensor squares(Stream& stream) override {
    if (!has_ranges_) copy(there_.ranges, here_.ranges, stream);
    has_ranges_ = true;
    cuda::sum_squares(there_.squares, there_.ranges, longest_, stream);
    return there_.squares;
  }
  void place_totals(ParamUpdate& update, size_t param) override {
    if (update.step.wants_totals)
      update.device_totals = there_.totals.rows(first_row_[param], first_row_[param + 1]);
  }
  std::vector<RangeTotals> totals(Stream& stream) override {
    copy(here_.totals, there_.totals, stream);
    synchronize(stream);
    std::vector<RangeTotals> all;
    for (size_t i = 0; i + 1 < first_row_.size(); ++i) {
      std::array<double, kTotals> sums{};
      for (int64_t k = first_row_[i] * kTotals; k < first_row_[i + 1] * kTotals; ++k)
        sums[static_cast<size_t>(k % kTotals)] += static_cast<double>(here_.totals.as<float>()[k]);
      all.push_back({sums[0], sums[1], sums[2], sums[3]});
    }
    return all;
  }
  int64_t non_finite() const override { return 0; }

 private:
  struct Sums {
    Tensor ranges;   // the gradients'; (params, sizeof(SquareRange)) u8
    Tensor squares;  // (kSquareParts) f32
    Tensor totals;   // (rows, kTotals) f32
  };

  static std::vector<int64_t> rows_of(const std::vector<const OptimParam*>& params) {
    std::vector<int64_t> first{0};
    for (const OptimParam* param : params)
      first.push_back(first.back() + cuda::update_blocks(param->elements()));
    return first;
  }
  Sums lay_out(Arena& arena) const {
    const auto params = static_cast<int64_t>(first_row_.size()) - 1;
    Sums sums;
    sums.ranges = arena.alloc(DType::u8, {params, static_cast<int64_t>(sizeof(cuda::SquareRange))});
    sums.squares = arena.alloc(DType::f32, {cuda::kSquareParts});
    sums.totals = arena.alloc(DType::f32, {first_row_.back(), kTotals});
    return sums;
  }
  Arena arena_for(const char* name, Memory memory, Backing backing) const {
    Arena plan(name, memory);
    lay_out(plan);
    return {name, plan.peak_bytes(), memory, backing};
  }

  std::vector<int64_t> first_row_;  // the first row of each parameter's totals, and the number of all
  Arena memory_, pinned_;
  Sums there_, here_;
  int64_t longest_ = 0;      // elements of the longest parameter
  bool has_ranges_ = false;  // true once ranges have been copied to the device
};

}  // namespace

std::unique_ptr<UpdateSums> make_update_sums(std::vector<const OptimParam*> params, Device device,
                                             Backing backing) {
  if constexpr (kHasCuda)
    if (device == Device::kCuda) return std::make_unique<CudaSums>(params, backing);
  if (backing == Backing::kAddresses) params.clear();
  return std::make_unique<CpuSums>(std::move(params));
}

}  // namespace ingot
