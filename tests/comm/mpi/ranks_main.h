// The main of tests that mpirun starts on several ranks. Each rank runs every test, and all
// ranks exit with the worst status.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <vector>

#include "ingot/comm/mpi_job.h"

namespace ingot {

inline Communicator* world = nullptr;

// Runs the tests in an existing job.
inline int run_tests_on(MpiJob& job, int argc, char** argv) {
  world = &job.world();
  if (world->rank() > 0) GTEST_FLAG_SET(brief, true);  // one full report is enough
  ::testing::InitGoogleTest(&argc, argv);
  std::vector<int64_t> failed = {RUN_ALL_TESTS()};
  if (failed[0]) std::fprintf(stderr, "rank %d has failed tests\n", world->rank());
  world->all_reduce("failed", Tensor(failed.data(), DType::i64, {1}), ReduceOp::kMax);
  return static_cast<int>(failed[0]);
}

inline int run_on_ranks(int argc, char** argv, double message_delay_s = 0) {
  MpiJob job({.timeout_s = 250, .message_delay_s = message_delay_s, .verifies = true});
  return run_tests_on(job, argc, argv);
}

}  // namespace ingot
