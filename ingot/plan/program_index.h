// ProgramIndex tells the simulation, before it runs a program, which operations the waits of the program are
// for.
#pragma once

#include <vector>

#include "ingot/plan/rank_program.h"

namespace ingot {

// Ranks that share a program share its index.
struct ProgramIndex {
  struct Operation {  // one of the program's distinct (group, name, kind)
    int group = 0, name = 0;
    CommOperation::Kind kind = CommOperation::Kind::kBarrier;
  };
  std::vector<Operation> operations;  // in the order of their first starts
  std::vector<int> operation_of;      // by ticket: index into operations, or -1
  int groups = 0;                     // the program uses groups 0 .. groups - 1
};

// Throws a kInternal error, with `rank` in its message, if a name does not exist, a time is negative or not
// finite, a ticket is started or waited for twice or not started before its wait, or it is greater than the
// number of operations in the program.
ProgramIndex index_program(const RankProgram& program, int rank);

}  // namespace ingot
