// Inside of device_group: a group over NCCL, loaded at run time. Compiled where its header is found.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "ingot/comm/communicator.h"
#include "ingot/core/stream.h"

namespace ingot {

#ifdef INGOT_WITH_NCCL
inline constexpr bool kHasNccl = true;
#else
inline constexpr bool kHasNccl = false;
#endif

namespace nccl {

// Null, on all ranks, unless each has the library and a device that no other has. Called by all ranks.
std::unique_ptr<Communicator> make_group(Communicator& host, Stream& stream);

// What the ranks tell each other to find that out.
struct RankDevice {
  char node[48] = {};   // host name
  char bus[16] = {};    // PCI bus of the device
  int64_t version = 0;  // of the library; 0: none
};
// Every rank has the same version of the library, and no two the same device.
bool have_own_devices(std::span<const RankDevice> ranks);

// NCCL's numbers for what is carried and how it is added; kInternal error for a dtype without one.
int dtype_code(DType dtype);
int op_code(ReduceOp op);

// "NCCL: group dp: all_reduce 'gradients 3' (number 17): unhandled system error (...)"
std::string failure_text(const std::string& group, const char* kind, const std::string& name, uint64_t number,
                         const std::string& cause);

}  // namespace nccl
}  // namespace ingot
