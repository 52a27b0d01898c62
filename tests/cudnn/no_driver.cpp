// A stand-in for libcuda.so.1 on machines without a GPU. cuDNN makes plans for the description of a
// device, and needs the driver only to load what it has compiled. Every function succeeds and does
// nothing, except cuGetExportTable.
#include <cuda.h>

// cuDNN looks these functions up by their unversioned names.
#undef cuCtxPopCurrent
#undef cuCtxPushCurrent
#undef cuLinkCreate
#undef cuLinkAddData

namespace {

int something = 0;

// Stores a handle that is not null.
template <typename Handle>
CUresult give(Handle* handle) {
  *handle = reinterpret_cast<Handle>(&something);
  return CUDA_SUCCESS;
}
CUresult give(int* value, int what) {
  *value = what;
  return CUDA_SUCCESS;
}

}  // namespace

#define NOTHING(name, ...) \
  CUresult name(__VA_ARGS__) { return CUDA_SUCCESS; }

extern "C" {

NOTHING(cuInit, unsigned)
// cuDNN asks for the compiler's cache here and works without it.
CUresult cuGetExportTable(const void** table, const CUuuid*) {
  *table = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}
CUresult cuDriverGetVersion(int* version) { return give(version, CUDA_VERSION); }
CUresult cuDeviceGetCount(int* count) { return give(count, 1); }
CUresult cuDeviceGet(CUdevice* device, int) { return give(device, 0); }
CUresult cuGetErrorName(CUresult, const char** name) {
  *name = "none";
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult, const char** text) {
  *text = "none";
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* context) { return give(context); }
CUresult cuCtxPopCurrent(CUcontext* context) { return give(context); }
NOTHING(cuCtxPushCurrent, CUcontext)
NOTHING(cuCtxGetLimit, size_t*, CUlimit)
CUresult cuStreamGetCtx(CUstream, CUcontext* context) { return give(context); }

CUresult cuLibraryLoadData(CUlibrary* library, const void*, CUjit_option*, void**, unsigned, CUlibraryOption*,
                           void**, unsigned) {
  return give(library);
}
CUresult cuLibraryLoadFromFile(CUlibrary* library, const char*, CUjit_option*, void**, unsigned,
                               CUlibraryOption*, void**, unsigned) {
  return give(library);
}
NOTHING(cuLibraryUnload, CUlibrary)
CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary, const char*) { return give(kernel); }
CUresult cuKernelGetFunction(CUfunction* function, CUkernel) { return give(function); }
NOTHING(cuKernelSetAttribute, CUfunction_attribute, int, CUkernel, CUdevice)
CUresult cuKernelGetAttribute(int* value, CUfunction_attribute, CUkernel, CUdevice) { return give(value, 0); }
CUresult cuOccupancyMaxPotentialClusterSize(int* size, CUfunction, const CUlaunchConfig*) {
  return give(size, 1);
}

// cuDNN 9.28 binds these when it loads its compilers.
CUresult cuModuleLoadData(CUmodule* module, const void*) { return give(module); }
CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char*) { return give(function); }
NOTHING(cuModuleUnload, CUmodule)
NOTHING(cuTensorMapEncodeTiled, CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
        const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
        CUtensorMapL2promotion, CUtensorMapFloatOOBfill)
NOTHING(cuTensorMapEncodeIm2col, CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
        const cuuint64_t*, const int*, const int*, cuuint32_t, cuuint32_t, const cuuint32_t*,
        CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill)

NOTHING(cuLinkCreate, unsigned, CUjit_option*, void**, CUlinkState*)
NOTHING(cuLinkAddData, CUlinkState, CUjitInputType, void*, size_t, const char*, unsigned, CUjit_option*,
        void**)
NOTHING(cuLinkComplete, CUlinkState, void**, size_t*)
NOTHING(cuLinkDestroy, CUlinkState)
NOTHING(cuLaunchKernel, CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
        CUstream, void**, void**)
NOTHING(cuLaunchCooperativeKernel, CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
        unsigned, CUstream, void**)
NOTHING(cuLaunchKernelEx, const CUlaunchConfig*, CUfunction, void**, void**)

}  // extern "C"
