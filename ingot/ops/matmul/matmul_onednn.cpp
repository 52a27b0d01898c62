// The oneDNN engine of ops/matmul. The file is empty in builds without oneDNN.
//
// Entry points: f32 uses dnnl_sgemm (docs/benchmarks/matmul.md); bf16 with a bf16 result uses the matmul
// primitive, cached per shape; bf16 with an f32 result (weight gradients) uses dnnl_gemm_bf16bf16f32,
// which the library exports without declaring it, if the build found it.
#ifdef INGOT_WITH_ONEDNN
#include <fmt/core.h>
#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <tuple>
#include <unordered_map>

#include "ingot/core/process/signal_stack.h"
#include "ingot/ops/matmul/matmul_engines.h"
#include "ingot/ops/simd/bf16_unit.h"

#ifdef INGOT_WITH_ONEDNN_BF16_GEMM
extern "C" dnnl_status_t dnnl_gemm_bf16bf16f32(char transpose_a, char transpose_b, dnnl_dim_t M, dnnl_dim_t N,
                                               dnnl_dim_t K, float alpha, const uint16_t* a, dnnl_dim_t lda,
                                               const uint16_t* b, dnnl_dim_t ldb, float beta, float* c,
                                               dnnl_dim_t ldc);
#endif

namespace ingot::onednn {
namespace {

using Key =
    std::tuple<MatmulForm, bool, bool, DType, DType, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t>;

struct Entry {
  dnnl::matmul primitive;
  dnnl::memory a, b, c;
};

// The primitives of one stream, made once per shape (0.3-1.2 ms each).
struct Primitives : StreamResource {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::map<Key, Entry> entries;
};

dnnl::memory::data_type to_dnnl(DType dtype) {
  return dtype == DType::f32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

dnnl::memory::desc matrix(int64_t rows, int64_t columns, int64_t ld, bool is_transposed, DType dtype) {
  const dnnl::memory::dims strides = is_transposed ? dnnl::memory::dims{1, ld} : dnnl::memory::dims{ld, 1};
  return {{rows, columns}, to_dnnl(dtype), strides};
}

// The factor of a product is a post-op, because the attribute for factors differs between oneDNN 2 and 3.
dnnl::memory::desc one_float() { return {{1, 1}, dnnl::memory::data_type::f32, dnnl::memory::dims{1, 1}}; }

dnnl::matmul::primitive_desc describe(const dnnl::engine& engine, const dnnl::memory::desc& a,
                                      const dnnl::memory::desc& b, const dnnl::memory::desc& c,
                                      const dnnl::primitive_attr& attributes) {
#if DNNL_VERSION_MAJOR < 3
  return {{a, b, c}, attributes, engine};
#else
  return {engine, a, b, c, attributes};
#endif
}

Entry make_entry(const MatmulProblem& p, const dnnl::engine& engine) {
  const auto a = matrix(p.M, p.K, p.lda, p.form == MatmulForm::kTN, p.in);
  const auto b = matrix(p.K, p.N, p.ldb, p.form == MatmulForm::kNT, p.in);
  const auto c = matrix(p.M, p.N, p.ldc, false, p.out);
  dnnl::post_ops post_ops;
  if (p.alpha != 1) post_ops.append_binary(dnnl::algorithm::binary_mul, one_float());
  if (p.accumulate) post_ops.append_sum(1.0f);
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(post_ops);
  const auto description = describe(engine, a, b, c, attributes);
  return {dnnl::matmul(description), dnnl::memory(a, engine, nullptr), dnnl::memory(b, engine, nullptr),
          dnnl::memory(c, engine, nullptr)};
}

void run_primitive(const MatmulProblem& p, Stream& stream) {
  if (!stream.matmul_primitives) stream.matmul_primitives = std::make_unique<Primitives>();
  auto& cache = static_cast<Primitives&>(*stream.matmul_primitives);
  const Key key{p.form, p.accumulate, p.alpha != 1, p.in, p.out, p.M, p.N, p.K, p.lda, p.ldb, p.ldc};
  auto found = cache.entries.find(key);
  if (found == cache.entries.end()) found = cache.entries.emplace(key, make_entry(p, cache.engine)).first;
  Entry& entry = found->second;
  entry.a.set_data_handle(const_cast<void*>(p.a));
  entry.b.set_data_handle(const_cast<void*>(p.b));
  entry.c.set_data_handle(p.c);
  float alpha = p.alpha;
  std::unordered_map<int, dnnl::memory> arguments = {
      {DNNL_ARG_SRC, entry.a}, {DNNL_ARG_WEIGHTS, entry.b}, {DNNL_ARG_DST, entry.c}};
  if (p.alpha != 1)
    arguments.emplace(DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1,
                      dnnl::memory(one_float(), cache.engine, &alpha));
  entry.primitive.execute(cache.stream, arguments);
  cache.stream.wait();
}

// Fails with oneDNN's reason for not computing a product.
[[noreturn]] void refuse(const MatmulProblem& p, dnnl_status_t status, const char* what) {
  if (status == dnnl_out_of_memory)
    fail(ErrorKind::kMemory,
         "out of memory: oneDNN has no room to work in for a product of {}x{}x{} {}; lower train.batch_size, "
         "model.context or model.width",
         p.M, p.N, p.K, name(p.in));
  fail(ErrorKind::kInternal, "oneDNN product {}x{}x{} {} failed with status {}: {}", p.M, p.N, p.K,
       name(p.in), static_cast<int>(status), what);
}

void run_sgemm(const MatmulProblem& p) {
  if (moves_stack_pointer()) use_signal_stacks_in_pool();
  const char transpose_a = p.form == MatmulForm::kTN ? 'T' : 'N';
  const char transpose_b = p.form == MatmulForm::kNT ? 'T' : 'N';
  const dnnl_status_t status = dnnl_sgemm(
      transpose_a, transpose_b, p.M, p.N, p.K, p.alpha, static_cast<const float*>(p.a), p.lda,
      static_cast<const float*>(p.b), p.ldb, p.accumulate ? 1.0f : 0.0f, static_cast<float*>(p.c), p.ldc);
  if (status != dnnl_success) refuse(p, status, "dnnl_sgemm");
}

bool run_bf16_gemm([[maybe_unused]] const MatmulProblem& p) {
#ifdef INGOT_WITH_ONEDNN_BF16_GEMM
  if (p.out != DType::f32) return false;
  const char transpose_a = p.form == MatmulForm::kTN ? 'T' : 'N';
  const char transpose_b = p.form == MatmulForm::kNT ? 'T' : 'N';
  const dnnl_status_t status = dnnl_gemm_bf16bf16f32(
      transpose_a, transpose_b, p.M, p.N, p.K, p.alpha, static_cast<const uint16_t*>(p.a), p.lda,
      static_cast<const uint16_t*>(p.b), p.ldb, p.accumulate ? 1.0f : 0.0f, static_cast<float*>(p.c), p.ldc);
  if (status == dnnl_out_of_memory) refuse(p, status, "dnnl_gemm_bf16bf16f32");
  return status == dnnl_success;  // on any other failure the caller uses the primitive
#else
  return false;
#endif
}

// Returns true if primitives can be made. A oneDNN that was built for SYCL has no engine on a machine without
// a SYCL device for its processor; its dnnl_sgemm needs none.
bool has_engine() {
  static const bool has_one = dnnl::engine::get_count(dnnl::engine::kind::cpu) > 0;
  return has_one;
}

}  // namespace

bool is_fast(DType in) {
  // Without a fast instruction, Ingot's own kernel is faster, which converts to f32 as it packs.
  return in == DType::f32 || (in == DType::bf16 && has_fast_bf16_instruction() && has_engine());
}

void matmul(const MatmulProblem& p, Stream& stream) {
  if (p.in == DType::f32) return run_sgemm(p);
  if (run_bf16_gemm(p)) return;
  // oneDNN 3.7 takes a matrix of one row or column for contiguous numbers, whatever its strides say.
  if (std::min({p.M, p.N, p.K}) == 1) return portable::matmul(p, stream);
  try {
    run_primitive(p, stream);
  } catch (const dnnl::error& error) {
    refuse(p, error.status, error.what());
  }
}

// uxlfoundation/oneDNN#4855 fixes the AVX2 and the AVX-512 kernel; 3.11.2 contains it.
bool moves_stack_pointer() {
#ifdef __x86_64__
  static const bool is_old = [] {
    const dnnl_version_t* v = dnnl_version();
    return std::tuple(v->major, v->minor, v->patch) < std::tuple(3, 11, 2);
  }();
  return is_old && __builtin_cpu_supports("avx");
#else
  return false;
#endif
}

const char* version() {
  static const std::string text = [] {
    const dnnl_version_t* v = dnnl_version();
    return fmt::format("oneDNN {}.{}.{}", v->major, v->minor, v->patch);
  }();
  return text.c_str();
}

}  // namespace ingot::onednn
#endif
