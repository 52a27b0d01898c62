// ncclCommSplit returns ncclSuccess and a null communicator while a thread of NCCL still makes it; only the
// state of the first communicator says when it is there. Ingot asked the null communicator, and every group
// for collectives ended at its start with "ncclCommSplit: invalid usage". The simulated NCCL had stored the
// communicator at once.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "ingot/comm/device_group.h"
#include "ingot/core/arena.h"
#include "ingot/core/copy.h"
#include "tests/comm/mpi/ranks_main.h"

namespace ingot {
namespace {

TEST(NcclSplit, AGroupWaitsForItsSecondCommunicator) {
  const char* gpus = std::getenv("INGOT_SIMULATED_GPUS");
  if (!gpus || std::string(gpus) != "own") GTEST_SKIP() << "the ranks share a GPU";
  Stream stream = make_stream(Device::kCuda);
  const std::unique_ptr<Communicator> group = device_group(*world, stream);
  Arena memory("test", 4096, Memory::kDevice);
  const Tensor one = memory.alloc(DType::f32, {1}), all = memory.alloc(DType::f32, {world->size()});
  group->all_gather_into("gather", all, one);  // in the lane of the second communicator
  group->all_reduce("sum", one);
  synchronize(stream);
}

}  // namespace
}  // namespace ingot
