// A group over NCCL, loaded at run time. Internal to device_group. Compiled if NCCL's header is found.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "ingot/comm/communicator.h"
#include "ingot/core/stream.h"

namespace ingot {

#ifdef INGOT_WITH_NCCL
inline constexpr bool kHasNccl = true;
#else
inline constexpr bool kHasNccl = false;
#endif

namespace nccl {

// All ranks call it. Returns true on all ranks if each has the same version of the library and a device that
// no other rank uses, and if there are at least two.
bool can_use(Communicator& host);
// All ranks call these, after can_use() was true for them, or if there is one rank only. A link carries
// messages, and no collectives, from rank 0 to rank 1 of a group of two.
std::unique_ptr<Communicator> make_group(Communicator& host, Stream& stream);
std::unique_ptr<Communicator> make_link(std::unique_ptr<Communicator> host, Stream& stream);
// Destroys what make_group() or make_link() returned; all its ranks call it. kInternal error if NCCL reports
// one, or does not end the communicators in time. The destructor alone would then abort them silently.
void finalize(std::unique_ptr<Communicator> group);

// The ranks exchange it to find out whether NCCL can be used.
struct RankDevice {
  char node[48] = {};   // host name
  char bus[16] = {};    // PCI bus of the device
  int64_t version = 0;  // version of the library; 0 if it cannot be loaded
};
// Returns true if all ranks have the same version of the library and no two have the same device.
bool have_own_devices(std::span<const RankDevice> ranks);

// NCCL's codes for dtypes and reductions. kInternal error for a dtype that has none.
int dtype_code(DType dtype);
int op_code(ReduceOp op);

// "NCCL: group dp: all_reduce 'gradients 3' (number 17): unhandled system error (...)"
// "NCCL: group dp: ncclCommSplit: unhandled system error (...)" for a call that is no operation
std::string failure_text(std::string_view group, std::string_view call, std::string_view operation,
                         uint64_t number, std::string_view cause);

}  // namespace nccl
}  // namespace ingot
