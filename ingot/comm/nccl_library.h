// The functions of NCCL's library that Ingot calls, loaded at run time, and the device on which they run.
// Internal to group_nccl.cpp.
#pragma once

#include <dlfcn.h>
#include <fmt/core.h>
#include <nccl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "ingot/comm/nccl_group.h"
#include "ingot/core/cuda/cuda_device.h"

namespace ingot::nccl {

static_assert(ncclInt8 == 0 && ncclUint8 == 1 && ncclInt32 == 2 && ncclUint32 == 3 && ncclInt64 == 4 &&
              ncclFloat16 == 6 && ncclFloat32 == 7 && ncclFloat64 == 8 && ncclBfloat16 == 9);
static_assert(ncclSum == 0 && ncclMax == 2 && ncclMin == 3);

struct Library {
  decltype(&ncclGetVersion) version = nullptr;
  decltype(&ncclGetUniqueId) unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) init = nullptr;
  decltype(&ncclCommFinalize) finalize = nullptr;
  decltype(&ncclCommDestroy) destroy = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclCommGetAsyncError) async_error = nullptr;
  decltype(&ncclGetErrorString) text = nullptr;
  decltype(&ncclGetLastError) last_error = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) receive = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclCommSplit) split = nullptr;

  // Returns the library's version, or 0 if it cannot be used. It is never unloaded, because its threads
  // outlive its communicators.
  int64_t load() {
    void* handle = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!handle) return 0;
    bool has_all = true;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
      has_all = has_all && function;
    };
    find(version, "ncclGetVersion");
    find(unique_id, "ncclGetUniqueId");
    find(init, "ncclCommInitRankConfig");
    find(finalize, "ncclCommFinalize");
    find(destroy, "ncclCommDestroy");
    find(abort, "ncclCommAbort");
    find(async_error, "ncclCommGetAsyncError");
    find(text, "ncclGetErrorString");
    find(last_error, "ncclGetLastError");
    find(all_reduce, "ncclAllReduce");
    find(all_gather, "ncclAllGather");
    find(reduce_scatter, "ncclReduceScatter");
    find(broadcast, "ncclBroadcast");
    find(send, "ncclSend");
    find(receive, "ncclRecv");
    find(group_start, "ncclGroupStart");
    find(group_end, "ncclGroupEnd");
    find(split, "ncclCommSplit");
    int number = 0;
    return has_all && version(&number) == ncclSuccess ? number : 0;
  }

  // Messages that proceed together: the block of `block_bytes` at place i goes to rank i.
  ncclResult_t all_to_all(const void* in, void* out, size_t block_bytes, int ranks, ncclComm_t comm,
                          cudaStream_t queue) const {
    ncclResult_t result = group_start();
    for (int peer = 0; result == ncclSuccess && peer < ranks; ++peer) {
      const size_t at = static_cast<size_t>(peer) * block_bytes;
      result = send(static_cast<const std::byte*>(in) + at, block_bytes, ncclUint8, peer, comm, queue);
      if (result == ncclSuccess)
        result = receive(static_cast<std::byte*>(out) + at, block_bytes, ncclUint8, peer, comm, queue);
    }
    const ncclResult_t end = group_end();
    return result == ncclSuccess ? end : result;
  }

  std::string words(ncclResult_t result, ncclComm_t comm) const {
    return fmt::format("{} ({})", text(result), last_error(comm));
  }
};

// Returns this rank's device; `version` is that of the loaded library.
inline RankDevice own_device(int64_t version) {
  RankDevice own;
  own.version = version;
  gethostname(own.node, sizeof own.node - 1);
  cuda::device_bus().copy(own.bus, sizeof own.bus - 1);
  return own;
}

}  // namespace ingot::nccl
