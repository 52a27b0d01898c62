// The stand-in for cuBLASLt refuses calls that the library documents as wrong, each for its reason.
#include <cublasLt.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace {

template <typename F>
F* function(const char* name) {
  static void* const library = dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL);
  auto* found = library ? reinterpret_cast<F*>(dlsym(library, name)) : nullptr;
  if (!found) throw std::runtime_error(dlerror());
  return found;
}
#define STAND_IN(name) function<decltype(name)>(#name)

// A product of D (m, n) with its operands on the device. It is right until a test changes it.
struct Call {
  int64_t m = 32, n = 48, k = 64, a_ld = 64, b_ld = 64, d_ld = 32, c_rows = 32;
  cudaDataType_t a_type = CUDA_R_16BF, b_type = CUDA_R_16BF, d_type = CUDA_R_32F;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cublasOperation_t turn_a = CUBLAS_OP_T, turn_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  cublasLtMatmulMatrixScale_t a_mode = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F, b_mode = a_mode;
  char *a = memory(), *b = memory(), *d = memory(), *workspace = memory();
  char* c = nullptr;  // if null, D is added to
  void *bias = nullptr, *aux = nullptr, *scale = nullptr;
  int64_t aux_ld = 32;
  uint32_t align = 256;
  size_t attribute_bytes = sizeof(cublasOperation_t), descriptor_bytes = sizeof(cublasLtMatmulDescOpaque_t);
  size_t workspace_bytes = size_t{1} << 16;
  bool has_layout = true;
  std::function<void(Call&)> after_choice = [](Call&) {};

  static char* memory() {
    void* place = nullptr;
    cudaMalloc(&place, size_t{1} << 16);
    cudaMemset(place, 0, size_t{1} << 16);
    cudaDeviceSynchronize();
    return static_cast<char*>(place);
  }
  Call& make_fp8() {
    a_type = CUDA_R_8F_E4M3;
    b_type = CUDA_R_8F_E5M2;
    scale = memory();
    return *this;
  }

  // Returns "" or the reason for which a function refused the call.
  std::string refusal() {
    cublasLtHandle_t handle = nullptr;
    STAND_IN(cublasLtCreate)(&handle);
    cublasLtMatmulDescOpaque_t what{};
    cublasLtMatrixLayoutOpaque_t layouts[4] = {};
    bool is_right = describe(what, layouts);
    cublasLtMatmulHeuristicResult_t found[2] = {};
    int count = 0;
    is_right = is_right && choose(handle, what, layouts, found, count);
    if (is_right) {
      after_choice(*this);
      is_right = describe(what, layouts);
      const float one = 1;
      cudaStream_t stream = nullptr;
      cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0);
      is_right =
          is_right && STAND_IN(cublasLtMatmul)(handle, &what, &one, a, &layouts[0], b, &layouts[1], &one,
                                               c ? c : d, &layouts[2], d, &layouts[3], &found[count - 1].algo,
                                               workspace, workspace_bytes, stream) == CUBLAS_STATUS_SUCCESS;
      cudaStreamSynchronize(stream);
      cudaStreamDestroy(stream);
    }
    STAND_IN(cublasLtDestroy)(handle);
    return is_right ? "" : function<const char*()>("simulated_cublaslt_reason")();
  }

 private:
  bool describe(cublasLtMatmulDescOpaque_t& what, cublasLtMatrixLayoutOpaque_t* layouts) const {
    bool is_right = STAND_IN(cublasLtMatmulDescInit_internal)(&what, descriptor_bytes, compute, CUDA_R_32F) ==
                    CUBLAS_STATUS_SUCCESS;
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value, size_t bytes) {
      is_right = is_right && STAND_IN(cublasLtMatmulDescSetAttribute)(&what, attribute, &value, bytes) ==
                                 CUBLAS_STATUS_SUCCESS;
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, turn_a, attribute_bytes);
    set(CUBLASLT_MATMUL_DESC_TRANSB, turn_b, sizeof turn_b);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue, sizeof epilogue);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias, sizeof bias);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux, sizeof aux);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, aux_ld, sizeof aux_ld);
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scale, sizeof scale);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scale, sizeof scale);
    set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, a_mode, sizeof a_mode);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, b_mode, sizeof b_mode);
    const auto init = [&](cublasLtMatrixLayoutOpaque_t& layout, cudaDataType_t type, int64_t rows,
                          int64_t columns, int64_t ld) {
      STAND_IN(cublasLtMatrixLayoutInit_internal)
      (&layout, sizeof layout, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), ld);
    };
    const bool turns_a = turn_a == CUBLAS_OP_T, turns_b = turn_b == CUBLAS_OP_T;
    if (has_layout) init(layouts[0], a_type, turns_a ? k : m, turns_a ? m : k, a_ld);
    init(layouts[1], b_type, turns_b ? n : k, turns_b ? k : n, b_ld);
    init(layouts[2], d_type, c_rows, n, d_ld);
    init(layouts[3], d_type, m, n, d_ld);
    return is_right;
  }
  bool choose(cublasLtHandle_t handle, cublasLtMatmulDescOpaque_t& what,
              cublasLtMatrixLayoutOpaque_t* layouts, cublasLtMatmulHeuristicResult_t* found,
              int& count) const {
    cublasLtMatmulPreferenceOpaque_t preference{};
    STAND_IN(cublasLtMatmulPreferenceInit_internal)(&preference, sizeof preference);
    const uint64_t most = size_t{1} << 16;
    const auto prefer = STAND_IN(cublasLtMatmulPreferenceSetAttribute);
    prefer(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most);
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      prefer(&preference, attribute, &align, sizeof align);
    return STAND_IN(cublasLtMatmulAlgoGetHeuristic)(handle, &what, &layouts[0], &layouts[1], &layouts[2],
                                                    &layouts[3], &preference, 2, found,
                                                    &count) == CUBLAS_STATUS_SUCCESS;
  }
};

struct WrongCall {
  const char* name;
  const char* reason;
  void (*spoil)(Call&);
};
void PrintTo(const WrongCall& call, std::ostream* out) { *out << call.name; }

void spoil_bias(Call& c) { c.epilogue = CUBLASLT_EPILOGUE_BIAS; }
Call& make_aux(Call& c) {
  c.epilogue = CUBLASLT_EPILOGUE_DGELU;
  c.aux = Call::memory();
  return c;
}

const WrongCall kWrongCalls[] = {
    {"AttributeOfTheWrongSize", "an attribute of the wrong size", [](Call& c) { c.attribute_bytes = 8; }},
    {"DescriptorTooSmall", "too little memory for an operation", [](Call& c) { c.descriptor_bytes = 64; }},
    {"LayoutWithoutInit", "a layout that was not initialised", [](Call& c) { c.has_layout = false; }},
    {"LeadingDimension", "a leading dimension below the number of rows", [](Call& c) { c.d_ld = 16; }},
    {"SizesThatDisagree", "C and D differ", [](Call& c) { c.c_rows = 16; }},
    {"TwoDtypes", "operands of two dtypes", [](Call& c) { c.b_type = CUDA_R_16F; }},
    {"ResultDtype", "a result of another 16-bit dtype", [](Call& c) { c.d_type = CUDA_R_16F; }},
    {"Tf32OfBf16", "tf32 of operands that are not f32",
     [](Call& c) { c.compute = CUBLAS_COMPUTE_32F_FAST_TF32; }},
    {"ScaleOfBf16", "scales of operands that are not FP8", [](Call& c) { c.scale = Call::memory(); }},
    {"Fp8NotKMajor", "FP8 operands that are not K-major (TN)",
     [](Call& c) { c.make_fp8().turn_a = CUBLAS_OP_N; }},
    {"TwoE5m2", "two operands of e5m2", [](Call& c) { c.make_fp8().a_type = CUDA_R_8F_E5M2; }},
    {"Fp8Sizes", "no multiples of 16", [](Call& c) { c.make_fp8().k = 56; }},
    {"Fp8LeadingDimension", "no multiples of 16", [](Call& c) { c.make_fp8().a_ld = 72; }},
    {"Fp8ScalesOfTwoKinds", "scales of two kinds",
     [](Call& c) { c.make_fp8().a_mode = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F; }},
    {"Fp8Pointer", "an FP8 matrix that is not on 16 bytes", [](Call& c) { c.make_fp8().align = 8; }},
    {"NoBias", "an epilogue with a bias and no pointer to it", spoil_bias},
    {"NoAux", "an epilogue with a second matrix and no pointer",
     [](Call& c) { c.epilogue = CUBLASLT_EPILOGUE_DGELU; }},
    {"AuxTooNarrow", "the second matrix has rows below those of D", [](Call& c) { make_aux(c).aux_ld = 24; }},
    {"AuxRows", "the second matrix has rows that are no multiple of 8",
     [](Call& c) { make_aux(c).aux_ld = 36; }},
    {"LessAlignedThanPromised", "a matrix that is less aligned than promised", [](Call& c) { c.b += 2; }},
    {"AddendLessAlignedThanPromised", "a matrix that is less aligned than promised",
     [](Call& c) { c.c = Call::memory() + 16; }},
    {"AddendThatOverlapsTheResult", "a C that overlaps D and is not D", [](Call& c) { c.c = c.d + 256; }},
    {"KernelOfAnotherProduct", "a kernel that was chosen for another product",
     [](Call& c) { c.after_choice = [](Call& later) { later.n = 32; }; }},
    {"WorkspaceTooSmall", "a workspace that is too small", [](Call& c) { c.workspace_bytes = 1024; }},
    {"WorkspaceAlignment", "a workspace that is not on 256 bytes", [](Call& c) { c.workspace += 16; }},
    {"MemoryOfTheHost", "memory that is not the device's",
     [](Call& c) {
       alignas(256) static char host[1 << 13];
       c.a = host;
     }},
};

class WrongCalls : public testing::TestWithParam<WrongCall> {};
TEST_P(WrongCalls, AreRefusedForTheirReason) {
  Call call;
  GetParam().spoil(call);
  EXPECT_THAT(call.refusal(), testing::HasSubstr(GetParam().reason));
}
INSTANTIATE_TEST_SUITE_P(CublasLt, WrongCalls, testing::ValuesIn(kWrongCalls),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(RightCalls, AreTaken) {
  EXPECT_EQ(Call().refusal(), "");
  Call fp8, rows, aux, addend;
  addend.c = Call::memory();
  EXPECT_EQ(addend.refusal(), "");
  fp8.make_fp8();
  EXPECT_EQ(fp8.refusal(), "");
  rows.make_fp8();
  rows.a_mode = rows.b_mode = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
  EXPECT_EQ(rows.refusal(), "");
  make_aux(aux);
  EXPECT_EQ(aux.refusal(), "");
}

// The library does not check lengths; the device's memory does.
TEST(RightCalls, BeyondAnAllocationEndTheProcess) {
  Call call;
  call.a += (1 << 16) - 256;
  EXPECT_DEATH(call.refusal(), "access beyond a device allocation");
}

}  // namespace
