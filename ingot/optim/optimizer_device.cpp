// The optimizer with parameters on a CUDA device: an elementwise rule updates dozens of parameters by one
// kernel, the others one by one by a few kernels, and the norm takes two kernels for all of them.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "ingot/core/copy.h"
#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/error.h"
#include "ingot/optim/cuda_step_check.h"
#include "ingot/optim/cuda_update.h"
#include "ingot/optim/optimizer.h"

namespace ingot {
namespace {

constexpr int64_t kTotals = 4;  // numbers in a row of totals

}  // namespace

// lay_out runs twice: on measuring arenas, then on arenas of the measured size.
void Optimizer::plan_on_device([[maybe_unused]] Backing backing) {
  if constexpr (kHasCuda) {
    const auto count = static_cast<int64_t>(members_.size());
    int64_t rows = 0;
    std::vector<int64_t> first_row;
    for (const Member& member : members_) {
      first_row.push_back(rows);
      rows += cuda::update_blocks(member.memory.param.elements());
    }
    const Shape table{count, static_cast<int64_t>(sizeof(cuda::SquareRange))};
    const auto lay_out = [&](OnDevice& d) {
      d.ranges = d.memory.alloc(DType::u8, table);
      d.host_ranges = d.pinned.alloc(DType::u8, table);
      d.squares = d.memory.alloc(DType::f32, {cuda::kSquareParts});
      d.host_squares = d.pinned.alloc(DType::f32, {cuda::kSquareParts});
      d.totals = d.memory.alloc(DType::f32, {rows, kTotals});
      d.host_totals = d.pinned.alloc(DType::f32, {rows, kTotals});
    };
    OnDevice plan{.memory = Arena("optimizer sums", Memory::kDevice),
                  .pinned = Arena("optimizer sums of the host", Memory::kPinned)};
    lay_out(plan);
    on_device_.emplace(
        OnDevice{.memory = Arena(plan.memory.name(), plan.memory.peak_bytes(), Memory::kDevice, backing),
                 .pinned = Arena(plan.pinned.name(), plan.pinned.peak_bytes(), Memory::kPinned, backing)});
    if (backing == Backing::kAddresses) return;
    lay_out(*on_device_);
    on_device_->first_row = std::move(first_row);
    auto* range = reinterpret_cast<cuda::SquareRange*>(on_device_->host_ranges.as<uint8_t>());
    for (const Member& member : members_) {
      const OptimParam& param = member.memory.param;
      const int64_t n = param.counted_elements();
      *range++ = {param.g.as<float>(), n};
      on_device_->longest = std::max(on_device_->longest, n);
    }
  }
}

Tensor Optimizer::squares_on_device([[maybe_unused]] Stream& stream) {
  OnDevice& d = *on_device_;
  if constexpr (kHasCuda) {
    if (!d.has_ranges) copy(d.ranges, d.host_ranges, stream);
    d.has_ranges = true;
    cuda::sum_squares(d.squares, d.ranges, d.longest, stream);
  }
  return d.squares;
}

double Optimizer::norm_on_device(Stream& stream) {
  OnDevice& d = *on_device_;
  copy(d.host_squares, squares_on_device(stream), stream);
  synchronize(stream);
  std::array<double, cuda::kSquareParts> sums;
  std::copy_n(d.host_squares.as<float>(), sums.size(), sums.begin());
  if constexpr (kHasCuda) return std::sqrt(cuda::sum_of_parts(sums.data()));
  return 0;
}

void Optimizer::step_by_factor(const StepInputs& inputs, const Tensor& factor, Stream& stream) {
  const Span span(stream.trace, "optimizer");
  INGOT_CHECK(is_on_device() && !inputs.wants_stats, "Optimizer::step_by_factor: not on a device, or stats");
  begin_step(inputs, 1);
  for (ParamStep& step : steps_) step.inputs.factor = factor;
  update_on_device(false, stream);
}

// Returns the rows of a parameter's totals.
Tensor Optimizer::OnDevice::totals_of(size_t param) const {
  return totals.rows(first_row[param], param + 1 < first_row.size() ? first_row[param + 1] : totals.dim(0));
}

Tensor Optimizer::wanted_totals(size_t param) const {
  return steps_[param].inputs.wants_totals ? on_device_->totals_of(param) : Tensor{};
}

// Updates the parameters whose rule needs no preparation.
void Optimizer::update_free_on_device(Stream& stream) {
  for (size_t group = 0; group < groups_.size(); ++group) {
    std::vector<DeviceUpdate> updates;
    for (size_t i = 0; i < members_.size(); ++i)
      if (members_[i].group == group && is_free(members_[i]))
        updates.push_back({members_[i].memory, steps_[i].inputs, wanted_totals(i)});
    if (!updates.empty()) groups_[group].device_rule->update_all(updates, scratch_, stream);
  }
}

void Optimizer::update_on_device(size_t param, Stream& stream) {
  const Member& member = members_[param];
  const ParamStep& step = steps_[param];
  const Tensor totals = wanted_totals(param);
  const Arena::Mark mark = scratch_.mark();
  groups_[member.group].device_rule->update(member.memory, step.inputs, step.prepared, totals, scratch_,
                                            stream);
  scratch_.release_to(mark);
}

void Optimizer::update_on_device(bool wants_stats, Stream& stream) {
  update_free_on_device(stream);
  share_numbers(stream);
  for (size_t i = 0; i < members_.size(); ++i) {
    if (!members_[i].needs.is_whole) continue;
    steps_[i].prepared.numbers = members_[i].numbers;
    update_on_device(i, stream);
  }
  if (!matrices_.empty()) update_matrices(stream);
  scratch_.release_to(0);
  if (wants_stats) read_totals(stream);
}

void Optimizer::read_totals(Stream& stream) {
  OnDevice& d = *on_device_;
  copy(d.host_totals, d.totals, stream);
  synchronize(stream);
  for (size_t i = 0; i < members_.size(); ++i) {
    std::array<double, kTotals> sums{};
    const int64_t begin = d.first_row[i] * kTotals, end = begin + d.totals_of(i).elements();
    for (int64_t k = begin; k < end; ++k)
      sums[static_cast<size_t>(k % kTotals)] += static_cast<double>(d.host_totals.as<float>()[k]);
    stats_[i].weight_norm = std::sqrt(sums[0]);
    stats_[i].grad_norm = std::sqrt(sums[1]);
    stats_[i].update_norm = std::sqrt(sums[2]);
    stats_[i].update_dot_weight = sums[3];
  }
}

}  // namespace ingot
