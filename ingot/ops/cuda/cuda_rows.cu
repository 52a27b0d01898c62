#include "ingot/ops/cuda_rows.h"

namespace ingot::cuda {
namespace {

constexpr int kWays = 16;  // ways of a block; each adds a contiguous range of the partial rows

// A block owns kWarp columns; a thread adds one column of one way. The kernel moves parts * C * 4 bytes.
__global__ void __launch_bounds__(kWarp* kWays)
    add_parts(float* __restrict__ total, const float* __restrict__ partials, int64_t parts, int64_t C) {
  __shared__ float sums[kWays][kWarp];
  const int lane = static_cast<int>(threadIdx.x), way = static_cast<int>(threadIdx.y);
  const int64_t column = int64_t{blockIdx.x} * kWarp + lane;
  float sum = 0;
  if (column < C)
    for (int64_t part = way * parts / kWays; part < (way + 1) * parts / kWays; ++part)
      sum += partials[part * C + column];
  sums[way][lane] = sum;
  __syncthreads();
  if (way != 0 || column >= C) return;
  sum = 0;
  for (int i = 0; i < kWays; ++i) sum += sums[i][lane];
  total[column] += sum;
}

}  // namespace

void add_row_parts(const Tensor& total, const float* partials, int64_t parts, Stream& stream) {
  const int64_t C = total.elements();
  launch({stream, "add_row_parts", dim3(blocks_for(C, kWarp)), dim3(kWarp, kWays)}, add_parts,
         total.as<float>(), partials, parts, C);
}

}  // namespace ingot::cuda
