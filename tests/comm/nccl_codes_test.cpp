// Tests what the NCCL group does without a device: its type and operation codes, which ranks can
// use it, and its error messages.
#include <gmock/gmock.h>

#include <cstring>

#include "ingot/comm/nccl_group.h"
#include "ingot/core/error.h"

namespace ingot {
namespace {

// comm/group_nccl.cpp asserts that these codes equal nccl.h's.
TEST(Nccl, DtypesAndOperationsHaveTheRightCodes) {
  EXPECT_EQ(nccl::dtype_code(DType::f32), 7);
  EXPECT_EQ(nccl::dtype_code(DType::bf16), 9);
  EXPECT_EQ(nccl::dtype_code(DType::f16), 6);
  EXPECT_EQ(nccl::dtype_code(DType::i32), 2);
  EXPECT_EQ(nccl::dtype_code(DType::i64), 4);
  EXPECT_EQ(nccl::dtype_code(DType::f64), 8);
  EXPECT_EQ(nccl::dtype_code(DType::f8e4m3), nccl::dtype_code(DType::u8));
  EXPECT_THROW(nccl::dtype_code(DType::u16), Error);
  EXPECT_EQ(nccl::op_code(ReduceOp::kSum), 0);
  EXPECT_EQ(nccl::op_code(ReduceOp::kMax), 2);
  EXPECT_EQ(nccl::op_code(ReduceOp::kMin), 3);
}

nccl::RankDevice device(const char* node, const char* bus, int64_t version = 22809) {
  nccl::RankDevice d;
  std::strncpy(d.node, node, sizeof d.node - 1);
  std::strncpy(d.bus, bus, sizeof d.bus - 1);
  d.version = version;
  return d;
}

TEST(Nccl, EveryRankNeedsItsOwnDevice) {
  using Ranks = std::vector<nccl::RankDevice>;
  EXPECT_TRUE(nccl::have_own_devices(Ranks{device("a", "0000:01:00.0"), device("a", "0000:02:00.0")}));
  EXPECT_TRUE(nccl::have_own_devices(Ranks{device("a", "0000:01:00.0"), device("b", "0000:01:00.0")}));
  EXPECT_FALSE(nccl::have_own_devices(Ranks{device("a", "0000:01:00.0"), device("a", "0000:01:00.0")}));
  EXPECT_FALSE(nccl::have_own_devices(Ranks{device("a", "0000:01:00.0"), device("b", "0000:01:00.0", 0)}));
  EXPECT_FALSE(
      nccl::have_own_devices(Ranks{device("a", "0000:01:00.0"), device("b", "0000:01:00.0", 21000)}));
}

TEST(Nccl, AFailureNamesTheOperation) {
  EXPECT_EQ(nccl::failure_text("dp", "all_reduce", "gradients 3", 17, "remote process exited"),
            "NCCL: group dp: all_reduce 'gradients 3' (number 17): remote process exited");
  EXPECT_EQ(nccl::failure_text("dp", "ncclCommSplit", "", 0, "unhandled system error"),
            "NCCL: group dp: ncclCommSplit: unhandled system error");
}

}  // namespace
}  // namespace ingot
