#include "ingot/plan/op_costs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ingot/core/error.h"

namespace ingot {
namespace {

double size_of(const OpKey& key) { return key.flops > 0 ? key.flops : key.bytes; }

double octaves(double a, double b) {
  if (a == b) return 0;
  if (a <= 0 || b <= 0) return std::numeric_limits<double>::max() / 4;
  return std::abs(std::log2(a / b));
}

}  // namespace

std::vector<MeasuredCosts::Row> MeasuredCosts::rows_of(const StepRecord& record) {
  std::vector<Row> rows;
  for (const OpKey& key : record.keys) rows.push_back({.key = key});
  std::vector<int64_t> counts(rows.size());
  double total = 0;
  int64_t ops = 0;
  for (const RecordedOp& op : record.ops) {
    if (op.key < 0) continue;
    const auto k = static_cast<size_t>(op.key);
    rows[k].seconds += op.op.seconds;
    total += op.op.seconds;
    ++counts[k];
    ++ops;
  }
  const double gap_s = ops > 0 ? std::max(0.0, record.step_s - total) / static_cast<double>(ops) : 0;
  for (size_t k = 0; k < rows.size(); ++k)
    rows[k].seconds = rows[k].seconds / static_cast<double>(std::max<int64_t>(1, counts[k])) + gap_s;
  return rows;
}

double MeasuredCosts::seconds(const OpKey& key) const {
  const Row* nearest = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const Row& row : rows_) {
    if (row.key == key) return row.seconds;
    if (row.key.name != key.name || row.key.form != key.form || row.key.dtype != key.dtype) continue;
    const double distance =
        octaves(row.key.flops, key.flops * tokens_ratio_) + octaves(row.key.bytes, key.bytes * tokens_ratio_);
    if (distance < least) {
      least = distance;
      nearest = &row;
    }
  }
  INGOT_CHECK(nearest, "MeasuredCosts: no operation {} {} {} was measured", key.name, key.form,
              name(key.dtype));
  const double size = size_of(nearest->key);
  return size > 0 ? nearest->seconds * size_of(key) / size : nearest->seconds;
}

double product_peak(const Hardware::Device& device, DType dtype, bool allows_tf32) {
  switch (dtype) {
    case DType::bf16:
    case DType::f16:
      return device.bf16_flops;
    case DType::f8e4m3:
    case DType::f8e5m2:
      return device.fp8_flops > 0 ? device.fp8_flops : device.bf16_flops;
    default:
      return allows_tf32 ? device.tf32_flops : device.f32_flops;
  }
}

double RooflineCosts::seconds(const OpKey& key) const {
  const double products =
      key.flops / (product_peak(device_, key.dtype, allows_tf32_) * device_.product_fraction);
  const double traffic = key.bytes / (device_.hbm_bytes_per_s * device_.memory_fraction);
  return std::max(products, traffic) + device_.kernel_launch_s;
}

}  // namespace ingot
