// Matrix products with cuBLASLt. Row-major c = op(a) op(b) is column-major cᵀ = op(b)ᵀ op(a)ᵀ, so b is
// cuBLASLt's A and a its B. The kernel for a shape is chosen by timing the candidates once, and so is whether a product
// is fused with what follows it. The choices are kept on disk per device and library version (cuda/kernel_choices.h).
//
// The library is loaded at the first product, because it is half a gigabyte large and runs on the CPU do
// not need it.
#include <cublasLt.h>
#include <dlfcn.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <vector>

#include "ingot/core/arena.h"
#include "ingot/core/copy.h"
#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/cuda/cuda_launch.h"
#include "ingot/ops/bias.h"
#include "ingot/ops/cast.h"
#include "ingot/ops/cuda/cuda_libraries.h"
#include "ingot/ops/cuda/fastest.h"
#include "ingot/ops/fp8/cuda_fp8.h"
#include "ingot/ops/matmul/matmul_engines.h"

namespace ingot::cuda {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;
constexpr int kCandidates = 8;

// The functions of the library that Ingot calls.
class Library {
 public:
  Library() : handle_(dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL)) {
    if (!handle_)
      fail(ErrorKind::kUsage, "cuBLASLt cannot be loaded: {}; put the folder with it in LD_LIBRARY_PATH",
           dlerror());
    find(create, "cublasLtCreate");
    find(destroy, "cublasLtDestroy");
    find(version, "cublasLtGetVersion");
    find(status_text, "cublasLtGetStatusString");
    find(init_operation, "cublasLtMatmulDescInit_internal");
    find(set_operation, "cublasLtMatmulDescSetAttribute");
    find(init_layout, "cublasLtMatrixLayoutInit_internal");
    find(init_preference, "cublasLtMatmulPreferenceInit_internal");
    find(set_preference, "cublasLtMatmulPreferenceSetAttribute");
    find(propose, "cublasLtMatmulAlgoGetHeuristic");
    find(multiply, "cublasLtMatmul");
  }
  // The library stays loaded: its threads and caches outlive its handles, and another user in this process may hold it.
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  void check(cublasStatus_t status, const char* call) const {
    if (status != CUBLAS_STATUS_SUCCESS)
      fail(ErrorKind::kInternal, "cuBLASLt: {}: {}", call, status_text(status));
  }

  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtGetVersion) version;
  decltype(&cublasLtGetStatusString) status_text;
  decltype(&cublasLtMatmulDescInit_internal) init_operation;
  decltype(&cublasLtMatmulDescSetAttribute) set_operation;
  decltype(&cublasLtMatrixLayoutInit_internal) init_layout;
  decltype(&cublasLtMatmulPreferenceInit_internal) init_preference;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference;
  decltype(&cublasLtMatmulAlgoGetHeuristic) propose;
  decltype(&cublasLtMatmul) multiply;

 private:
  template <typename F>
  void find(F& function, const char* name) {
    function = reinterpret_cast<F>(dlsym(handle_, name));
    if (!function) fail(ErrorKind::kUsage, "cuBLASLt has no {}: it must be of CUDA 13", name);
  }

  void* handle_;
};

// Returns the alignment of p in bytes, at most the 256 that the library assumes by default.
uint32_t alignment(const void* p) {
  const uintptr_t lowest = reinterpret_cast<uintptr_t>(p) & -reinterpret_cast<uintptr_t>(p);
  return static_cast<uint32_t>(std::min<uintptr_t>(lowest, 256));
}

// Scales and mode of an FP8 product.
struct Fp8Scales {
  const float *a = nullptr, *b = nullptr;  // on the device: factors of the decoded values
  bool is_by_row = false;  // true: one factor per row of both operands; false: one factor each
  bool is_fast = false;
};

struct Product {
  MatmulProblem problem;
  DType a, b;
  Fp8Scales fp8 = {};
  MatmulEpilogue epilogue = {};
  bool is_tf32 = false;

  // Returns everything that the choice of a kernel may depend on.
  std::string key() const {
    const MatmulProblem& p = problem;
    return fmt::format("{}.{}.{}.{}.{}.{}x{}x{}.{}.{}.{}.{}.{}.{}.{}{}{}{}{}", static_cast<int>(p.form),
                       name(a), name(b), name(p.out), p.accumulate ? 1 : 0, p.M, p.N, p.K, p.lda, p.ldb,
                       p.ldc, alignment(p.a), alignment(p.b), alignment(p.c), fp8.is_fast ? 1 : 0,
                       fp8.is_by_row ? "r" : "", is_tf32 ? "t" : "",
                       p.addend ? fmt::format(".+{}", alignment(p.addend)) : "", epilogue_key());
  }

 private:
  std::string epilogue_key() const {
    if (epilogue.kind == MatmulEpilogue::Kind::kNone) return "";
    return fmt::format(".e{}.{}.{}.{}", static_cast<int>(epilogue.kind), alignment(epilogue.bias),
                       epilogue.aux_ld, alignment(epilogue.aux));
  }
};

cudaDataType_t blas_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return CUDA_R_32F;
    case DType::f16:
      return CUDA_R_16F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::f8e4m3:
      return CUDA_R_8F_E4M3;
    case DType::f8e5m2:
      return CUDA_R_8F_E5M2;
    default:
      fail(ErrorKind::kInternal, "matmul: no product of {} on a CUDA device", name(dtype));
  }
}

// cuBLASLt's D has Ingot's N as its rows, and its B is Ingot's a.
cublasLtEpilogue_t blas_epilogue(const MatmulEpilogue& epilogue) {
  using Kind = MatmulEpilogue::Kind;
  switch (epilogue.kind) {
    case Kind::kBias:
      return CUBLASLT_EPILOGUE_BIAS;
    case Kind::kGelu:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case Kind::kGeluBackward:
      return CUBLASLT_EPILOGUE_DGELU;
    case Kind::kBiasGradient:
      return CUBLASLT_EPILOGUE_BGRADB;
    default:
      return CUBLASLT_EPILOGUE_DEFAULT;
  }
}

// The descriptors of one product; cuBLASLt's A is Ingot's b.
struct Description {
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t a, b, d;

  Description(const Library& library, const Product& product) {
    const MatmulProblem& p = product.problem;
    library.check(library.init_operation(&operation, sizeof operation,
                                         product.is_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                                         CUDA_R_32F),
                  "MatmulDescInit");
    const bool turns_a = p.form == MatmulForm::kNT, turns_b = p.form == MatmulForm::kTN;
    const auto set = [&](cublasLtMatmulDescAttributes_t what, auto value) {
      library.check(library.set_operation(&operation, what, &value, sizeof value), "MatmulDescSetAttribute");
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, turns_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, turns_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (product.fp8.a) {
      set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, product.fp8.b);
      set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, product.fp8.a);
      if (product.fp8.is_by_row) {
        set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
        set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
      }
      set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<int8_t>(product.fp8.is_fast ? 1 : 0));
    }
    const MatmulEpilogue& epilogue = product.epilogue;
    if (epilogue.kind != MatmulEpilogue::Kind::kNone)
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, blas_epilogue(epilogue));
    if (epilogue.bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, epilogue.bias);
    if (epilogue.aux) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, epilogue.aux);
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, epilogue.aux_ld);
    }
    const auto init = [&](cublasLtMatrixLayoutOpaque_t& layout, DType dtype, int64_t rows, int64_t columns,
                          int64_t ld) {
      library.check(library.init_layout(&layout, sizeof layout, blas_type(dtype), static_cast<uint64_t>(rows),
                                        static_cast<uint64_t>(columns), ld),
                    "MatrixLayoutInit");
    };
    init(a, product.b, turns_a ? p.K : p.N, turns_a ? p.N : p.K, p.ldb);
    init(b, product.a, turns_b ? p.M : p.K, turns_b ? p.K : p.M, p.lda);
    init(d, p.out, p.N, p.M, p.ldc);
  }
};

// The library, its workspace and the kernels chosen so far; destroyed with the stream.
class Products final : public StreamResource {
 public:
  explicit Products(Stream& stream)
      : stream_(stream), workspace_("cuBLASLt workspace", kWorkspaceBytes, Memory::kDevice) {
    library_.check(library_.create(&handle_), "Create");
    memory_ = workspace_.alloc_as<uint8_t>(static_cast<int64_t>(kWorkspaceBytes));
  }
  ~Products() override { library_.destroy(handle_); }
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  // Returns true if the product and what follows it are faster fused.
  bool prefers_fused(const FusedProduct& product) {
    const MatmulProblem& p = product.problem;
    const std::string key = "fused." + Product{p, p.in, p.in, {}, product.epilogue, is_tf32(p)}.key();
    if (const auto choice = choices_.find(key)) return *choice == "yes";
    if (stream_.graph) return false;
    // A product is timed on the results themselves, whose sums are then restored.
    size_t sums_bytes = Arena::kDeviceAlign;
    for (const Tensor& sum : product.sums) sums_bytes += sum.bytes() + Arena::kDeviceAlign;
    Arena own("fused product timing", sums_bytes, Memory::kDevice);
    std::vector<Tensor> before;
    for (const Tensor& sum : product.sums)
      copy(before.emplace_back(own.alloc(sum.dtype, sum.shape)), sum, stream_);
    const auto run = [&](size_t way) {
      if (way == 0) return product.fused();
      product.separate();
      return true;
    };
    const bool is_fused = fastest(2, run, stream_) == size_t{0};
    for (size_t i = 0; i < before.size(); ++i) copy(product.sums[i], before[i], stream_);
    ingot::synchronize(stream_);  // `own` ends here
    return choices_.keep(key, is_fused ? "yes" : "no") == "yes";
  }

  bool is_tf32(const MatmulProblem& p) const {
    return p.in == DType::f32 && libraries_of(stream_).allows_tf32;
  }

  // Computes the product. Returns false, without side effects, if the library has no kernel for it.
  bool run(const Product& product) {
    const std::string key = product.key();
    if (lacking_.contains(key)) return false;
    Description description(library_, product);
    auto found = kernels_.find(key);
    if (found == kernels_.end()) {
      const auto kernel = kernel_for(key, product, description);
      if (!kernel) {
        lacking_.insert(key);
        return false;
      }
      found = kernels_.emplace(key, *kernel).first;
    }
    library_.check(compute(product, description, found->second, product.problem.c), "Matmul");
    return true;
  }

 private:
  cublasStatus_t compute(const Product& product, Description& what, const cublasLtMatmulAlgo_t& algorithm,
                         void* c) {
    const MatmulProblem& p = product.problem;
    const float beta = p.accumulate || p.addend ? 1 : 0;
    return library_.multiply(handle_, &what.operation, &p.alpha, p.b, &what.a, p.a, &what.b, &beta,
                             p.addend ? p.addend : c, &what.d, c, &what.d, &algorithm, memory_,
                             kWorkspaceBytes, queue_of(stream_));
  }

  // Returns the kernel that was chosen for the key, or chooses one; nullopt if there is none.
  std::optional<cublasLtMatmulAlgo_t> kernel_for(const std::string& key, const Product& product,
                                                 Description& what) {
    std::optional<cublasLtMatmulAlgo_t> kernel;
    if (const auto text = choices_.find(key)) kernel = algorithm_of(*text);
    if (!kernel) kernel = choose(product, what);
    if (!kernel || stream_.graph) return kernel;  // a graph is no place for timing: the first one was taken
    return algorithm_of(choices_.keep(key, text_of(*kernel))).value_or(*kernel);
  }

  // Returns the fastest kernel that the library proposes; nullopt if there is none. Accumulating
  // products are timed on separate memory; outputs of an epilogue are simply overwritten by each run.
  std::optional<cublasLtMatmulAlgo_t> choose(const Product& product, Description& what) {
    const MatmulProblem& p = product.problem;
    cublasLtMatmulPreferenceOpaque_t preference;
    library_.check(library_.init_preference(&preference, sizeof preference), "MatmulPreferenceInit");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      library_.check(library_.set_preference(&preference, attribute, &value, sizeof value),
                     "MatmulPreferenceSetAttribute");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kWorkspaceBytes});
    // Excludes sums by atomics, so that equal calls give equal bits.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(p.b));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(p.a));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(p.addend ? p.addend : p.c));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(p.c));
    std::vector<cublasLtMatmulHeuristicResult_t> proposed(kCandidates);
    int count = 0;
    const cublasStatus_t status =
        library_.propose(handle_, &what.operation, &what.a, &what.b, &what.d, &what.d, &preference,
                         kCandidates, proposed.data(), &count);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return std::nullopt;
    library_.check(status, "MatmulAlgoGetHeuristic");
    if (count == 0) return std::nullopt;
    if (stream_.graph) return proposed.front().algo;
    std::optional<Arena> own;
    void* c = p.c;
    if (p.accumulate) {
      const size_t c_bytes = static_cast<size_t>(p.M * p.ldc) * size_bytes(p.out);
      own.emplace("matmul timing", c_bytes + Arena::kDeviceAlign, Memory::kDevice);
      c = own->alloc(p.out, {p.M, p.ldc}).data;
    }
    const auto best = fastest(
        static_cast<size_t>(count),
        [&](size_t i) { return compute(product, what, proposed[i].algo, c) == CUBLAS_STATUS_SUCCESS; },
        stream_);
    return best ? std::optional(proposed[*best].algo) : std::nullopt;
  }

  // The kernel as text, for the choices on disk: its words in hexadecimal.
  static std::string text_of(const cublasLtMatmulAlgo_t& algorithm) {
    std::ostringstream out;
    for (const uint64_t word : algorithm.data) out << std::hex << word << ' ';
    return out.str();
  }
  static std::optional<cublasLtMatmulAlgo_t> algorithm_of(const std::string& text) {
    std::istringstream in(text);
    cublasLtMatmulAlgo_t algorithm{};
    for (uint64_t& word : algorithm.data) in >> std::hex >> word;
    return in ? std::optional(algorithm) : std::nullopt;
  }

  Stream& stream_;
  Library library_;
  cublasLtHandle_t handle_ = nullptr;
  Arena workspace_;
  void* memory_ = nullptr;
  KernelChoices& choices_ = choices_of("products", library_.version());
  std::map<std::string, cublasLtMatmulAlgo_t> kernels_;  // those used so far, by the products' keys
  std::set<std::string> lacking_;                        // keys of products without a kernel
};

Products& products_of(Stream& stream) {
  std::unique_ptr<StreamResource>& place = libraries_of(stream).products;
  if (!place) place = std::make_unique<Products>(stream);
  return static_cast<Products&>(*place);
}

}  // namespace

bool matmul_with(const MatmulProblem& p, const MatmulEpilogue& epilogue, Stream& stream) {
  Products& products = products_of(stream);
  return products.run({p, p.in, p.in, {}, epilogue, products.is_tf32(p)});
}

bool prefers_fused(const FusedProduct& product, Stream& stream) {
  return libraries_of(stream).always_fuses || products_of(stream).prefers_fused(product);
}

void matmul(const MatmulProblem& p, Stream& stream) {
  if (!matmul_with(p, {}, stream))
    fail(ErrorKind::kInternal, "cuBLASLt has no kernel for a product of {}, {} x {} x {}", name(p.in), p.M,
         p.N, p.K);
}

void matmul_fp8(const Tensor& c, const Fp8Operand& a, const Fp8Operand& b, const Fp8ProductMode& mode,
                Stream& stream) {
  const Tensor &x = a.codes, &w = b.codes;
  INGOT_CHECK(
      x.rank() == 2 && w.rank() == 2 && x.dim(1) == w.dim(1) && c.dim(0) == x.dim(0) && c.dim(1) == w.dim(0),
      "matmul_fp8: c (M, N), a (M, K) and b (N, K) must agree, got {}, {} and {}", c.shape.to_string(),
      x.shape.to_string(), w.shape.to_string());
  const int64_t a_scales = a.inverse.elements(), b_scales = b.inverse.elements();
  const bool is_by_row = a_scales > 1 || b_scales > 1;
  INGOT_CHECK(a_scales == (is_by_row ? c.dim(0) : 1) && b_scales == (is_by_row ? c.dim(1) : 1),
              "matmul_fp8: one scale for each operand, or one for each of their rows, got {} and {}",
              a_scales, b_scales);
  const Tensor& base = mode.terms.base;
  INGOT_CHECK(!base || (base.dtype == c.dtype && base.shape == c.shape && base.strides[0] == c.strides[0]),
              "matmul_fp8: base must have c's dtype, shape and strides, got {} {}", name(base.dtype),
              base.shape.to_string());
  const MatmulProblem problem{MatmulForm::kNT, mode.accumulate, x.dtype,      c.dtype,    c.dim(0),
                              c.dim(1),        x.dim(1),        x.data,       w.data,     c.data,
                              x.strides[0],    w.strides[0],    c.strides[0], mode.alpha, base.data};
  const Fp8Scales scales{a.inverse.as<float>(), b.inverse.as<float>(), is_by_row, mode.is_fast};
  const auto run = [&](const MatmulEpilogue& epilogue) {
    return products_of(stream).run({problem, x.dtype, w.dtype, scales, epilogue});
  };
  const auto multiply = [&] {
    if (!run({}))
      fail(ErrorKind::kInternal, "cuBLASLt has no kernel for a product of {} and {}, {} x {} x {}",
           name(x.dtype), name(w.dtype), problem.M, problem.N, problem.K);
  };
  const Tensor &bias = mode.terms.bias, &rounded = mode.terms.rounded;
  if (!bias) return multiply();
  cast(rounded, bias, stream);
  const MatmulEpilogue epilogue{.kind = MatmulEpilogue::Kind::kBias, .bias = rounded.data};
  const auto fused = [&] { return run(epilogue); };
  const auto separate = [&] {
    multiply();
    bias_forward(c, bias, stream);
  };
  if (!prefers_fused({problem, epilogue, fused, separate}, stream) || !fused()) separate();
}

}  // namespace ingot::cuda
