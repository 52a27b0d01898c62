// A stand-in for cuBLASLt on the simulated device. Like the library, it checks every descriptor, pointer,
// alignment, leading dimension, scale and workspace by the library's documentation, and refuses what it
// documents as wrong or unsupported. It computes on the host.
#include <cublasLt.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/simulated_cuda/products.h"

namespace {

using ingot::DType;
using ingot::MatmulEpilogue;
using ingot::MatmulForm;
using simulated_cuda::Use;

constexpr uint64_t kOperation = 0x6f7065726174696f, kLayout = 0x6c61796f7574, kPreference = 0x707265666572,
                   kAlgorithm = 0x616c676f;
constexpr size_t kWorkspaceAlign = 256;  // bytes, on Hopper
constexpr int64_t kGranule = 16;         // bytes or FP8 numbers

// The contents of the opaque structs.
struct Operation {
  uint64_t magic;
  const void *bias, *aux, *a_scale, *b_scale;
  int64_t aux_ld;
  cublasOperation_t turn_a, turn_b;
  cublasLtEpilogue_t epilogue;
  cublasComputeType_t compute;
  cublasLtMatmulMatrixScale_t a_mode, b_mode;
  int8_t is_fast;
};
struct Layout {
  uint64_t magic;
  int64_t rows, columns, ld;
  cudaDataType_t type;
};
struct Preference {
  uint64_t magic, workspace_bytes;
  uint32_t a_align, b_align, c_align, d_align, reductions;
};
struct Algorithm {
  uint64_t magic;
  uint64_t workspace_bytes, shape;  // a hash of everything that the kernel was proposed for
  uint32_t a_align, b_align, c_align, d_align, number;
};
static_assert(sizeof(Operation) <= sizeof(cublasLtMatmulDescOpaque_t) &&
              sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t) &&
              sizeof(Preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t) &&
              sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

template <typename T, typename Opaque>
T taken(const Opaque* opaque) {
  T value{};
  if (opaque) std::memcpy(&value, opaque->data, sizeof value);
  return value;
}
template <typename Opaque, typename T>
void put(Opaque* opaque, const T& value) {
  std::memcpy(opaque->data, &value, sizeof value);
}

const char* last_reason = "";
cublasStatus_t refuse(cublasStatus_t status, const char* why) {
  last_reason = why;
  return status;
}
cublasStatus_t invalid(const char* why) { return refuse(CUBLAS_STATUS_INVALID_VALUE, why); }
cublasStatus_t unsupported(const char* why) { return refuse(CUBLAS_STATUS_NOT_SUPPORTED, why); }

// Returns true if INGOT_SIMULATED_CUBLASLT_REFUSES, a list of words, has the word: the stand-in then behaves
// like a library without kernels for that kind of product. Heuristics see neither beta nor C's address, so
// kinds that depend on them (rowwise_beta, rowwise_addend, addend) are refused when they are to be computed.
bool is_refused(const char* kind) {
  const char* list = std::getenv("INGOT_SIMULATED_CUBLASLT_REFUSES");
  return list && (" " + std::string(list) + " ").find(" " + std::string(kind) + " ") != std::string::npos;
}

bool is_fp8(cudaDataType_t type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }
int64_t bytes_of(cudaDataType_t type) { return type == CUDA_R_32F ? 4 : is_fp8(type) ? 1 : 2; }
bool is_on(const void* place, size_t align) { return reinterpret_cast<uintptr_t>(place) % align == 0; }

// Everything that a product depends on. D = op(A) op(B), column-major: D is m x n.
struct Problem {
  Operation op;
  Layout a, b, c, d;
  bool turns_a() const { return op.turn_a == CUBLAS_OP_T; }
  bool turns_b() const { return op.turn_b == CUBLAS_OP_T; }
  int64_t k() const { return turns_a() ? a.rows : a.columns; }
  bool has_aux() const {
    return op.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS || op.epilogue == CUBLASLT_EPILOGUE_DGELU;
  }
  bool has_bias() const {
    return op.epilogue == CUBLASLT_EPILOGUE_BIAS || op.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
           op.epilogue == CUBLASLT_EPILOGUE_BGRADB;
  }
  bool is_by_row() const { return op.a_mode == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F; }
  // The bias has D's type unless the operation names another one. With 8-bit operands and an f32 D it is bf16
  // (cublasLt.h, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE).
  cudaDataType_t bias_type() const { return is_fp8(a.type) && d.type == CUDA_R_32F ? CUDA_R_16BF : d.type; }
  uint64_t shape() const {
    uint64_t hash = 0;
    for (const int64_t part : {int64_t{a.type}, int64_t{b.type}, int64_t{d.type}, int64_t{op.turn_a},
                               int64_t{op.turn_b}, int64_t{op.epilogue}, int64_t{op.compute},
                               int64_t{op.a_mode}, d.rows, d.columns, k(), a.ld, b.ld, d.ld})
      hash = (hash ^ static_cast<uint64_t>(part)) * 0x100000001b3;
    return hash;
  }
};

cublasStatus_t check_sizes(const Problem& p) {
  if (p.op.magic != kOperation) return invalid("an operation that was not initialised");
  for (const Layout* layout : {&p.a, &p.b, &p.c, &p.d}) {
    if (layout->magic != kLayout) return invalid("a layout that was not initialised");
    if (layout->rows < 1 || layout->columns < 1) return invalid("an empty matrix");
    if (layout->ld < layout->rows) return invalid("a leading dimension below the number of rows");
  }
  const int64_t m = p.turns_a() ? p.a.columns : p.a.rows, n = p.turns_b() ? p.b.rows : p.b.columns;
  if ((p.turns_b() ? p.b.columns : p.b.rows) != p.k()) return invalid("A and B disagree about K");
  if (p.d.rows != m || p.d.columns != n) return invalid("D has not the size of the product");
  if (p.c.rows != m || p.c.columns != n || p.c.type != p.d.type) return invalid("C and D differ");
  if (p.c.ld != p.d.ld) return unsupported("the stand-in wants one leading dimension for C and D");
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t check_fp8(const Problem& p) {
  if (!is_fp8(p.b.type)) return unsupported("an FP8 operand and another dtype");
  if (p.a.type == CUDA_R_8F_E5M2 && p.b.type == CUDA_R_8F_E5M2) return unsupported("two operands of e5m2");
  if (!p.turns_a() || p.turns_b()) return unsupported("FP8 operands that are not K-major (TN)");
  if (p.op.compute != CUBLAS_COMPUTE_32F) return unsupported("FP8 operands in tf32");
  if (p.k() % kGranule || p.d.rows % kGranule || p.a.ld % kGranule || p.b.ld % kGranule ||
      p.d.ld * bytes_of(p.d.type) % kGranule)
    return unsupported("an FP8 product whose sizes or leading dimensions are no multiples of 16");
  if (p.op.a_mode != p.op.b_mode) return unsupported("scales of two kinds");
  if (p.op.epilogue != CUBLASLT_EPILOGUE_DEFAULT && p.op.epilogue != CUBLASLT_EPILOGUE_BIAS)
    return unsupported("an FP8 product with another epilogue than a bias");
  if (p.op.epilogue == CUBLASLT_EPILOGUE_BIAS && is_refused("fp8_bias"))
    return unsupported("FP8 with a bias");
  if (p.is_by_row() && is_refused("rowwise")) return unsupported("scales by row");
  if (p.is_by_row() && p.op.is_fast && is_refused("rowwise_fast"))
    return unsupported("scales by row with fast sums");
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t check_types(const Problem& p) {
  if (is_fp8(p.d.type)) return unsupported("an FP8 result");
  if (is_fp8(p.a.type)) return check_fp8(p);
  if (p.a.type != p.b.type) return unsupported("operands of two dtypes");
  if (p.d.type != p.a.type && p.d.type != CUDA_R_32F) return unsupported("a result of another 16-bit dtype");
  if (p.op.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && p.a.type != CUDA_R_32F)
    return unsupported("tf32 of operands that are not f32");
  if (p.op.a_scale || p.op.b_scale || p.op.a_mode || p.op.b_mode)
    return unsupported("scales of operands that are not FP8");
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t check_epilogue(const Problem& p) {
  if (p.has_bias() && !p.op.bias) return invalid("an epilogue with a bias and no pointer to it");
  if (!p.has_aux()) return CUBLAS_STATUS_SUCCESS;
  if (!p.op.aux) return invalid("an epilogue with a second matrix and no pointer to it");
  if (p.op.aux_ld < p.d.rows) return invalid("the second matrix has rows below those of D");
  if (p.op.aux_ld % 8) return invalid("the second matrix has rows that are no multiple of 8");
  if (!is_on(p.op.aux, kGranule)) return unsupported("the second matrix is not on 16 bytes");
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t check(const Problem& p) {
  for (const auto part : {check_sizes, check_types, check_epilogue})
    if (const cublasStatus_t status = part(p); status != CUBLAS_STATUS_SUCCESS) return status;
  return CUBLAS_STATUS_SUCCESS;
}

Problem problem_of(cublasLtMatmulDesc_t what, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                   cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d) {
  return {taken<Operation>(what), taken<Layout>(a), taken<Layout>(b), taken<Layout>(c), taken<Layout>(d)};
}

Use span_of(const void* first, const Layout& layout, bool is_write) {
  const int64_t elements = (layout.columns - 1) * layout.ld + layout.rows;
  return {first, static_cast<size_t>(elements * bytes_of(layout.type)), is_write};
}

// The memory that a product reads and writes.
std::vector<Use> uses_of(const Problem& p, const void* a, const void* b, const void* c, void* d,
                         void* workspace, size_t bytes) {
  const auto rows = static_cast<size_t>(p.d.rows), columns = static_cast<size_t>(p.d.columns);
  std::vector<Use> uses{span_of(a, p.a, false), span_of(b, p.b, false), span_of(d, p.d, true)};
  if (bytes > 0) uses.push_back({workspace, bytes, true});
  if (c && c != d) uses.push_back(span_of(c, p.c, false));
  if (p.op.a_scale) uses.push_back({p.op.a_scale, (p.is_by_row() ? rows : 1) * sizeof(float), false});
  if (p.op.b_scale) uses.push_back({p.op.b_scale, (p.is_by_row() ? columns : 1) * sizeof(float), false});
  const bool is_gradient = p.op.epilogue == CUBLASLT_EPILOGUE_BGRADB;
  const auto bytes_each = static_cast<size_t>(bytes_of(p.d.type));
  if (p.has_bias())
    uses.push_back({p.op.bias, (is_gradient ? columns : rows) * static_cast<size_t>(bytes_of(p.bias_type())),
                    is_gradient});
  if (p.has_aux())
    uses.push_back({p.op.aux, ((columns - 1) * static_cast<size_t>(p.op.aux_ld) + rows) * bytes_each,
                    p.op.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS});
  return uses;
}

DType dtype_of(cudaDataType_t type) {
  switch (type) {
    case CUDA_R_16F:
      return DType::f16;
    case CUDA_R_16BF:
      return DType::bf16;
    case CUDA_R_8F_E4M3:
      return DType::f8e4m3;
    case CUDA_R_8F_E5M2:
      return DType::f8e5m2;
    default:
      return DType::f32;
  }
}

MatmulEpilogue::Kind kind_of(cublasLtEpilogue_t epilogue) {
  using Kind = MatmulEpilogue::Kind;
  switch (epilogue) {
    case CUBLASLT_EPILOGUE_BIAS:
      return Kind::kBias;
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
      return Kind::kGelu;
    case CUBLASLT_EPILOGUE_DGELU:
      return Kind::kGeluBackward;
    case CUBLASLT_EPILOGUE_BGRADB:
      return Kind::kBiasGradient;
    default:
      return Kind::kNone;
  }
}

// The product in row-major terms: cuBLASLt's B is the a there, and its D is the transposed c.
simulated_cuda::Product product_of(const Problem& p, float alpha, bool accumulates, const void* a,
                                   const void* b, const void* c, void* d) {
  simulated_cuda::Product product;
  product.problem = {p.turns_a()   ? MatmulForm::kNT
                     : p.turns_b() ? MatmulForm::kTN
                                   : MatmulForm::kNN,
                     accumulates && c == d,
                     dtype_of(p.b.type),
                     dtype_of(p.d.type),
                     p.d.columns,
                     p.d.rows,
                     p.k(),
                     b,
                     a,
                     d,
                     p.b.ld,
                     p.a.ld,
                     p.d.ld,
                     alpha,
                     accumulates && c != d ? c : nullptr};
  product.b = dtype_of(p.a.type);
  product.is_tf32 = p.op.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  product.a_scale = static_cast<const float*>(p.op.b_scale);
  product.b_scale = static_cast<const float*>(p.op.a_scale);
  product.is_by_row = p.is_by_row();
  product.bias = dtype_of(p.bias_type());
  product.epilogue.kind = kind_of(p.op.epilogue);
  product.epilogue.bias = const_cast<void*>(p.op.bias);
  product.epilogue.aux = const_cast<void*>(p.op.aux);
  product.epilogue.aux_ld = p.op.aux_ld;
  return product;
}

template <typename T>
bool takes(T& place, const void* value, size_t size_bytes) {
  if (!value || size_bytes != sizeof(T)) return false;
  std::memcpy(&place, value, sizeof(T));
  return true;
}

}  // namespace

// Returns the reason for which the last call was refused; for tests.
extern "C" const char* simulated_cublaslt_reason() { return last_reason; }

struct cublasLtContext {};
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
// No version of the library. It changes with Algorithm, whose bytes are kept on disk, and with what is
// refused.
size_t cublasLtGetVersion() {
  const char* list = std::getenv("INGOT_SIMULATED_CUBLASLT_REFUSES");
  return 2 + (list ? std::hash<std::string_view>()(list) : 0);
}
const char* cublasLtGetStatusString(cublasStatus_t) { return last_reason; }

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t what, size_t size_bytes,
                                               cublasComputeType_t compute, cudaDataType_t scale) {
  if (size_bytes < sizeof *what) return invalid("too little memory for an operation");
  if (scale != CUDA_R_32F) return invalid("f32 sums with scales that are not f32");
  Operation operation{};
  operation.magic = kOperation;
  operation.compute = compute;
  operation.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  put(what, operation);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t what,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              size_t size_bytes) {
  auto o = taken<Operation>(what);
  if (o.magic != kOperation) return invalid("an operation that was not initialised");
  const bool is_taken = [&] {
    switch (attribute) {
      case CUBLASLT_MATMUL_DESC_TRANSA:
        return takes(o.turn_a, value, size_bytes);
      case CUBLASLT_MATMUL_DESC_TRANSB:
        return takes(o.turn_b, value, size_bytes);
      case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return takes(o.epilogue, value, size_bytes);
      case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return takes(o.bias, value, size_bytes);
      case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        return takes(o.aux, value, size_bytes);
      case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        return takes(o.aux_ld, value, size_bytes);
      case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
        return takes(o.a_scale, value, size_bytes);
      case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
        return takes(o.b_scale, value, size_bytes);
      case CUBLASLT_MATMUL_DESC_A_SCALE_MODE:
        return takes(o.a_mode, value, size_bytes);
      case CUBLASLT_MATMUL_DESC_B_SCALE_MODE:
        return takes(o.b_mode, value, size_bytes);
      case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
        return takes(o.is_fast, value, size_bytes);
      default:
        return false;
    }
  }();
  if (!is_taken) return invalid("an attribute of the wrong size, or one that is unknown");
  put(what, o);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t size_bytes,
                                                 cudaDataType_t type, uint64_t rows, uint64_t columns,
                                                 int64_t ld) {
  if (size_bytes < sizeof *layout) return invalid("too little memory for a layout");
  put(layout, Layout{kLayout, static_cast<int64_t>(rows), static_cast<int64_t>(columns), ld, type});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference,
                                                     size_t size_bytes) {
  if (size_bytes < sizeof *preference) return invalid("too little memory for a preference");
  put(preference, Preference{kPreference, 0, 256, 256, 256, 256, CUBLASLT_REDUCTION_SCHEME_MASK});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t size_bytes) {
  auto p = taken<Preference>(preference);
  if (p.magic != kPreference) return invalid("a preference that was not initialised");
  const bool is_taken = [&] {
    switch (attribute) {
      case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return takes(p.workspace_bytes, value, size_bytes);
      case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return takes(p.reductions, value, size_bytes);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
        return takes(p.a_align, value, size_bytes);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
        return takes(p.b_align, value, size_bytes);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
        return takes(p.c_align, value, size_bytes);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return takes(p.d_align, value, size_bytes);
      default:
        return false;
    }
  }();
  if (!is_taken) return invalid("an attribute of the wrong size, or one that is unknown");
  put(preference, p);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t what,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results, int* count) {
  *count = 0;
  const auto preferred = taken<Preference>(preference);
  if (!handle || wanted < 1 || preferred.magic != kPreference)
    return invalid("no handle, place or preference");
  const Problem p = problem_of(what, a, b, c, d);
  if (const cublasStatus_t status = check(p); status != CUBLAS_STATUS_SUCCESS) return status;
  if (is_fp8(p.a.type) && std::min({preferred.a_align, preferred.b_align, preferred.d_align}) < kGranule)
    return unsupported("an FP8 matrix that is not on 16 bytes");
  // The second kernel sums its parts through the workspace.
  for (uint32_t number = 0; number < 2 && *count < wanted; ++number) {
    const uint64_t workspace = number * static_cast<uint64_t>(p.d.rows * p.d.columns) * sizeof(float);
    if (workspace > preferred.workspace_bytes) continue;
    cublasLtMatmulHeuristicResult_t& result = results[(*count)++];
    result = {};
    put(&result.algo, Algorithm{kAlgorithm, workspace, p.shape(), preferred.a_align, preferred.b_align,
                                preferred.c_align, preferred.d_align, number});
    result.workspaceSize = workspace;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t what, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
  const Problem p = problem_of(what, a_layout, b_layout, c_layout, d_layout);
  if (!handle || !alpha || !beta) return invalid("no handle or factor");
  if (const cublasStatus_t status = check(p); status != CUBLAS_STATUS_SUCCESS) return status;
  const auto chosen = taken<Algorithm>(algorithm);
  if (chosen.magic != kAlgorithm || chosen.shape != p.shape())
    return unsupported("a kernel that was chosen for another product");
  if (!is_on(a, chosen.a_align) || !is_on(b, chosen.b_align) || !is_on(d, chosen.d_align))
    return unsupported("a matrix that is less aligned than promised");
  if (is_fp8(p.a.type) && !(is_on(a, kGranule) && is_on(b, kGranule) && is_on(d, kGranule)))
    return unsupported("an FP8 matrix that is not on 16 bytes");
  if (chosen.workspace_bytes > workspace_bytes) return invalid("a workspace that is too small");
  if (chosen.workspace_bytes > 0 && (!workspace || !is_on(workspace, kWorkspaceAlign)))
    return invalid("a workspace that is not on 256 bytes");
  float factor = 0, old_factor = 0;
  std::memcpy(&factor, alpha, sizeof factor);
  std::memcpy(&old_factor, beta, sizeof old_factor);
  if (old_factor != 0 && old_factor != 1) return unsupported("the stand-in's beta is 0 or 1");
  if (old_factor != 0 && !is_on(c, chosen.c_align))
    return unsupported("a matrix that is less aligned than promised");
  const bool has_addend = old_factor != 0 && c != d;
  if (has_addend && is_refused("addend")) return unsupported("C that is not D");
  if (p.is_by_row() && has_addend && is_refused("rowwise_addend"))
    return unsupported("scales by row and C that is not D");
  if (p.is_by_row() && old_factor != 0 && c == d && is_refused("rowwise_beta"))
    return unsupported("scales by row and beta = 1");
  const std::vector<Use> uses =
      uses_of(p, a, b, old_factor != 0 ? c : nullptr, d, workspace, chosen.workspace_bytes);
  if (has_addend) {
    const Use read = span_of(c, p.c, false), written = span_of(d, p.d, true);
    const auto *first = static_cast<const char*>(read.begin),
               *other = static_cast<const char*>(written.begin);
    if (first < other + written.size_bytes && other < first + read.size_bytes)
      return invalid("a C that overlaps D and is not D");
  }
  for (const Use& use : uses)
    if (!simulated_cuda::is_device_memory(use.begin)) return invalid("memory that is not the device's");
  simulated_cuda::enqueue(
      stream,
      [product = product_of(p, factor, old_factor == 1, a, b, c, d)] { simulated_cuda::compute(product); },
      uses);
  return CUBLAS_STATUS_SUCCESS;
}
