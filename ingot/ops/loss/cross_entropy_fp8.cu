#include "ingot/ops/loss/cross_entropy_fp8.h"

#include "ingot/ops/fp8/cuda_fp8_tile.h"
#include "ingot/ops/loss/cuda_tile_gradient.h"

namespace ingot::cuda {
namespace {

using loss::TileGradient;

// A block owns a row.
template <int W, typename Cap>
__global__ void __launch_bounds__(kThreads) largest_gradient(uint32_t* amax, TileGradient<Cap> of) {
  const auto row = of.row(blockIdx.x);
  float most = 0;
  for (int column = static_cast<int>(threadIdx.x) * W; column < of.tile.W; column += kThreads * W) {
    const Floats<W> d = of.template at<W>(row, column);
#pragma unroll
    for (int k = 0; k < W; ++k) most = std::fmax(most, std::fabs(d.at[k]));
  }
  raise<kThreads>(amax, most);
}

// A block owns a tile (fp8::encode_tile): it reads 4 bytes of each logit and writes two codes.
template <typename Cap>
__global__ void __launch_bounds__(kThreads)
    encode_gradient(f8e5m2* d, f8e5m2* transposed, int64_t N, TileGradient<Cap> of, const float* scale,
                    fp8::Meter meter) {
  const float factor = *scale;
  constexpr int W = fp8::kTileWidth;
  fp8::encode_tile(
      d, transposed, N, of.tile.W, meter,
      [=](int64_t n, int64_t column) { return of.template at<W>(of.row(n), static_cast<int>(column)); },
      [=](Floats<W>& v, int64_t, fp8::Tally& tally) { tally.template take<f8e5m2>(v, factor); });
}

void check_tile(const LogitTile& tile, const char* op) {
  INGOT_CHECK(tile.logits.rank() == 2 && tile.logits.is_contiguous(),
              "{}: a tile must be (N, W) and contiguous, got {}", op, tile.logits.shape.to_string());
  const int64_t N = tile.logits.dim(0);
  check_tensor(tile.logits, DType::f32, {N, tile.logits.dim(1)}, op);
  check_tensor(tile.lse, DType::f32, {N}, op);
  check_tensor(tile.targets, DType::i32, {N}, op);
}

}  // namespace

void raise_gradient_amax(const Tensor& amax, const LogitTile& tile, const CrossEntropyConfig& config,
                         Stream& stream) {
  const char* op = "raise_gradient_amax";
  check_tensor(amax, DType::f32, {1}, op);
  check_tile(tile, op);
  with_width<float>(tile.logits.dim(1) % 4 == 0 && is_aligned(tile.logits.data), [&](auto width) {
    loss::with_gradient(tile, config, [&](auto of) {
      launch({stream, op, dim3(blocks_for(tile.logits.dim(0), 1)), dim3(kThreads)},
             largest_gradient<decltype(width)::value, decltype(of.cap)>, float_bits(amax), of);
    });
  });
}

void cross_entropy_fp8_gradient(const Tensor& d, const Tensor& transposed, const LogitTile& tile,
                                const CrossEntropyConfig& config, const Fp8Place& place, Stream& stream) {
  const char* op = "cross_entropy_fp8_gradient";
  check_tile(tile, op);
  const int64_t N = tile.logits.dim(0), W = tile.logits.dim(1);
  check_tensor(d, DType::f8e5m2, {N, W}, op);
  check_tensor(transposed, DType::f8e5m2, {W, N}, op);
  check_tensor(place.scale, DType::f32, {1}, op);
  INGOT_CHECK(N % 8 == 0 && W % 8 == 0 && is_aligned(tile.logits.data),
              "{}: rows and columns must be multiples of 8, aligned, got ({}, {})", op, N, W);
  const fp8::Meter meter = fp8::meter_of({place.amax, place.counts}, op);
  loss::with_gradient(tile, config, [&](auto of) {
    launch({stream, op, fp8::tiles_of(N, W), dim3(kThreads)}, encode_gradient<decltype(of.cap)>,
           d.as<f8e5m2>(), transposed.as<f8e5m2>(), N, of, place.scale.as<float>(), meter);
  });
}

}  // namespace ingot::cuda
