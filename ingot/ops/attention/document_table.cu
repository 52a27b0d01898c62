#include "ingot/ops/attention/document_table.h"

#include "ingot/core/cuda/cuda_elementwise.h"

namespace ingot::cuda {
namespace {

struct FillTable {
  int32_t *lengths, *qkv_at, *out_at, *lse_at;
  const int32_t* cu_seqlens;
  DocumentStrides strides;
  int64_t D;

  __device__ void operator()(int64_t i) const {
    const int64_t first = cu_seqlens[i];
    if (i < D) lengths[i] = static_cast<int32_t>(cu_seqlens[i + 1] - first);
    qkv_at[i] = static_cast<int32_t>(first * strides.qkv);
    out_at[i] = static_cast<int32_t>(first * strides.out);
    lse_at[i] = static_cast<int32_t>(first * strides.lse);
  }
};

template <bool is_to_tokens>
struct TurnLse {
  float *lse, *by_token;
  int64_t H, T;

  __device__ void operator()(int64_t i) const {
    const int64_t row = i / H, h = i % H, b = row / T, t = row % T;
    float& of_head = lse[(b * H + h) * T + t];
    if (is_to_tokens)
      by_token[i] = of_head;
    else
      of_head = by_token[i];
  }
};

template <bool is_to_tokens>
void turn(const Tensor& lse, const Tensor& by_token, const char* op, Stream& stream) {
  check_tensor(lse, DType::f32, lse.shape, op);
  INGOT_CHECK(lse.rank() == 3, "{}: lse must be (B, H, T), got {}", op, lse.shape.to_string());
  const int64_t H = lse.dim(1), T = lse.dim(2);
  check_tensor(by_token, DType::f32, {lse.dim(0) * T, H}, op);
  launch_elementwise<1>(lse.elements(), op, stream,
                        TurnLse<is_to_tokens>{lse.as<float>(), by_token.as<float>(), H, T});
}

}  // namespace

void document_table(const DocumentTable& table, const Tensor& cu_seqlens, const DocumentStrides& strides,
                    Stream& stream) {
  const char* op = "document_table";
  INGOT_CHECK(cu_seqlens.rank() == 1 && cu_seqlens.elements() > 1, "{}: cu_seqlens must be (D + 1)", op);
  check_tensor(cu_seqlens, DType::i32, cu_seqlens.shape, op);
  const int64_t D = cu_seqlens.dim(0) - 1;
  check_tensor(table.lengths, DType::i32, {D}, op);
  for (const Tensor* at : {&table.qkv_at, &table.out_at, &table.lse_at})
    check_tensor(*at, DType::i32, {D + 1}, op);
  launch_elementwise<1>(
      D + 1, op, stream,
      FillTable{table.lengths.as<int32_t>(), table.qkv_at.as<int32_t>(), table.out_at.as<int32_t>(),
                table.lse_at.as<int32_t>(), cu_seqlens.as<int32_t>(), strides, D});
}

void lse_to_tokens(const Tensor& by_token, const Tensor& lse, Stream& stream) {
  turn<true>(lse, by_token, "lse_to_tokens", stream);
}

void lse_from_tokens(const Tensor& lse, const Tensor& by_token, Stream& stream) {
  turn<false>(lse, by_token, "lse_from_tokens", stream);
}

}  // namespace ingot::cuda
