// Empty in builds without MPI.
#ifdef INGOT_WITH_MPI
#include "ingot/comm/mpi_job.h"

#include <mpi.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>

#include "ingot/comm/mpi_communicator.h"
#include "ingot/comm/mpi_watchdog.h"
#include "ingot/core/process/thread_limit.h"

namespace ingot {

bool is_mpi_process() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"})
    if (std::getenv(name)) return true;
  return false;
}

std::string mpi_library() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int size = 0;
  if (MPI_Get_library_version(text.data(), &size) != MPI_SUCCESS) return "unknown";
  const std::string_view all(text.data());
  return std::string(all.substr(0, all.find_first_of(",\n")));
}

struct MpiJob::State {
  explicit State(const MpiOptions& options) : context(options) {}
  mpi::JobContext context;
  int ranks_on_node = 1, rank_on_node = 0;
  MPI_Comm node = MPI_COMM_NULL;
  std::unique_ptr<mpi::Watchdog> watchdog;
  std::unique_ptr<Communicator> world;
};

MpiJob::MpiJob(const MpiOptions& options) {
  int level = 0;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS)
    fail(ErrorKind::kInternal, "MPI_Init_thread failed");
  if (level < MPI_THREAD_MULTIPLE)
    fail(ErrorKind::kInternal, "this MPI library does not let several threads call it (level {} of {})",
         level, static_cast<int>(MPI_THREAD_MULTIPLE));
  state_ = std::make_unique<State>(options);
  MPI_Comm_rank(MPI_COMM_WORLD, &state_->context.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &state_->context.size);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm& node = state_->node;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  MPI_Comm_size(node, &state_->ranks_on_node);
  MPI_Comm_rank(node, &state_->rank_on_node);
  state_->watchdog = std::make_unique<mpi::Watchdog>(state_->context);
  MPI_Comm copy = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  state_->world = mpi::make_communicator(state_->context, copy, "world");
}

MpiJob::~MpiJob() {
  if (std::uncaught_exceptions() > 0) mpi::abort_job(state_->context, "ended by an error", 1);
  state_->world->barrier("end of the job");
  state_->world.reset();
  state_->watchdog.reset();
  MPI_Comm_free(&state_->node);
  MPI_Finalize();
}

int MpiJob::ranks_on_node() const { return state_->ranks_on_node; }
int MpiJob::rank_on_node() const { return state_->rank_on_node; }

int MpiJob::cores_on_node() {
  cpu_set_t cores = affinity_mask();
  MPI_Allreduce(MPI_IN_PLACE, &cores, sizeof cores, MPI_BYTE, MPI_BOR, state_->node);
  return CPU_COUNT(&cores);
}

Communicator& MpiJob::world() { return *state_->world; }

void MpiJob::abort(const std::string& cause, int exit_code) {
  mpi::abort_job(state_->context, cause, exit_code);
}

}  // namespace ingot
#endif
