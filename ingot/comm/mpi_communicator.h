// A group of ranks over MPI. Internal to comm.
#pragma once

#include <mpi.h>

#include <memory>
#include <string>

#include "ingot/comm/mpi_board.h"

namespace ingot::mpi {

// Owns `comm`. All ranks of `comm` call it.
std::unique_ptr<Communicator> make_communicator(JobContext& context, MPI_Comm comm, std::string name);

[[noreturn]] void abort_job(JobContext& context, const std::string& cause, int exit_code);

}  // namespace ingot::mpi
