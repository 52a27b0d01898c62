// Matrix products with cuBLASLt. Row-major c = op(a) op(b) is column-major cᵀ = op(b)ᵀ op(a)ᵀ, so b is
// cuBLASLt's A and a its B. The kernel for a shape is chosen by timing the candidates once, and so is whether
// a product is fused with what follows it. The choices are kept on disk per device and library version
// (cuda/kernel_choices.h).
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
#include "ingot/ops/cuda/cuda_libraries.h"
#include "ingot/ops/cuda/fastest.h"
#include "ingot/ops/matmul/cublaslt_product.h"

namespace ingot::cuda {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;
constexpr int kCandidates = 8;
// The choices between a product with an epilogue and separate kernels.
constexpr const char *kFused = "fused", *kSeparate = "separate", *kRefused = "refused";

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
  // The library stays loaded: its threads and caches outlive its handles, and another user in this process
  // may hold it.
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

// True if the library has no kernel for a call, or says that it is no call.
bool is_refusal(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE;
}

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
    const std::string key = product.product.key();
    if (const auto known = prefers_fused_.find(key); known != prefers_fused_.end()) return known->second;
    if (stream_.graph) ++report().met_in_graphs;
    std::optional<std::string> choice = choices_.find("fused." + key);
    if (choice && *choice == kRefused) ++report().products[product.product.kind()].refused;
    if (!choice && stream_.graph) return false;  // a graph is no place for timing
    if (!choice) choice = choices_.keep("fused." + key, faster_way(product));
    if (*choice == kSeparate) ++report().products[product.product.kind()].slower;
    return prefers_fused_[key] = *choice == kFused;
  }

  // Computes the product. Returns false, without side effects, if the library has no kernel for it.
  bool run(const Product& product) {
    if (const auto& survey = libraries_of(stream_).survey) {
      survey(product);
      return true;
    }
    const std::string key = product.key();
    if (lacking_.contains(key)) return false;
    Description description(library_, product);
    auto found = kernels_.find(key);
    if (found == kernels_.end()) {
      if (stream_.graph) ++report().met_in_graphs;
      const auto kernel = kernel_for(key, product, description);
      if (!kernel) return lack(key, product);
      found = kernels_.emplace(key, *kernel).first;
      if (product.is_special()) ++report().products[product.kind()].taken;
    }
    count_launch(LaunchKind::kLibrary);
    const cublasStatus_t status = compute(product, description, found->second, product.problem.c);
    // A kernel that was chosen without being run may be refused now.
    if (is_refusal(status) && product.is_special()) return lack(key, product);
    library_.check(status, "Matmul");
    return true;
  }

  ProductAnswer ask(const Product& product) {
    Description description(library_, product);
    std::vector<cublasLtMatmulHeuristicResult_t> proposed;
    const cublasStatus_t status = propose(product, description, proposed);
    return {static_cast<int>(proposed.size()), proposed.empty() ? 0 : proposed.front().workspaceSize,
            library_.status_text(status)};
  }

 private:
  KernelReport& report() { return libraries_of(stream_).report; }

  bool lack(const std::string& key, const Product& product) {
    lacking_.insert(key);
    if (product.is_special()) ++report().products[product.kind()].refused;
    return false;
  }

  // Times the two ways and returns the choice.
  const char* faster_way(const FusedProduct& product) {
    // A product is timed on the results themselves, whose sums are then restored.
    size_t sums_bytes = Arena::kDeviceAlign;
    for (const Tensor& sum : product.sums) sums_bytes += sum.bytes() + Arena::kDeviceAlign;
    Arena own("fused product timing", sums_bytes, Memory::kDevice);
    std::vector<Tensor> before;
    for (const Tensor& sum : product.sums)
      copy(before.emplace_back(own.alloc(sum.dtype, sum.shape)), sum, stream_);
    bool is_refused = false;
    const auto run = [&](size_t way) {
      if (way == 0) return !(is_refused = !product.fused());
      product.separate();
      return true;
    };
    const bool is_fused = fastest(2, run, stream_) == size_t{0};
    for (size_t i = 0; i < before.size(); ++i) copy(product.sums[i], before[i], stream_);
    ingot::synchronize(stream_);  // `own` ends here
    return is_fused ? kFused : is_refused ? kRefused : kSeparate;
  }

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

  // Sets `proposed` to the kernels that the library proposes.
  cublasStatus_t propose(const Product& product, Description& what,
                         std::vector<cublasLtMatmulHeuristicResult_t>& proposed) {
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
    proposed.resize(kCandidates);
    int count = 0;
    const cublasStatus_t status =
        library_.propose(handle_, &what.operation, &what.a, &what.b, &what.d, &what.d, &preference,
                         kCandidates, proposed.data(), &count);
    proposed.resize(status == CUBLAS_STATUS_SUCCESS ? static_cast<size_t>(count) : 0);
    return status;
  }

  // Returns the fastest kernel that the library proposes; nullopt if there is none. Accumulating
  // products are timed on separate memory; outputs of an epilogue are simply overwritten by each run.
  std::optional<cublasLtMatmulAlgo_t> choose(const Product& product, Description& what) {
    const MatmulProblem& p = product.problem;
    std::vector<cublasLtMatmulHeuristicResult_t> proposed;
    const cublasStatus_t status = propose(product, what, proposed);
    if (!is_refusal(status)) library_.check(status, "MatmulAlgoGetHeuristic");
    if (proposed.empty()) return std::nullopt;
    if (stream_.graph) return proposed.front().algo;
    std::optional<Arena> own;
    void* c = p.c;
    if (p.accumulate) {
      const size_t c_bytes = static_cast<size_t>(p.M * p.ldc) * size_bytes(p.out);
      own.emplace("matmul timing", c_bytes + Arena::kDeviceAlign, Memory::kDevice);
      c = own->alloc(p.out, {p.M, p.ldc}).data;
    }
    const auto best = fastest(
        proposed.size(),
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
  std::map<std::string, bool> prefers_fused_;            // by the products' keys
};

Products& products_of(Stream& stream) {
  std::unique_ptr<StreamResource>& place = libraries_of(stream).products;
  if (!place) place = std::make_unique<Products>(stream);
  return static_cast<Products&>(*place);
}

}  // namespace

bool prefers_fused(const FusedProduct& product, Stream& stream) {
  const Libraries& libraries = libraries_of(stream);
  return libraries.always_fuses || libraries.survey || products_of(stream).prefers_fused(product);
}

ProductAnswer ask(const Product& product, Stream& stream) { return products_of(stream).ask(product); }

bool run(const Product& product, Stream& stream) { return products_of(stream).run(product); }

void matmul(const MatmulProblem& p, Stream& stream) {
  const Product product = plain_product(p, {}, stream);
  if (!run(product, stream)) fail_without_kernel(product);
}

}  // namespace ingot::cuda
