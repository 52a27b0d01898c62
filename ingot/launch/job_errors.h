// Reads the cause of a job's end from its error output: the messages of Ingot's ranks and of the launchers
// mpirun and srun.
#pragma once

#include <optional>
#include <string>

#include "ingot/launch/incident.h"

namespace ingot {

// Returns "signal 9 (SIGKILL)".
std::string signal_name(int number);
// Returns kKilled if another process must have sent the signal, and kCrashed if it is a fault of the process
// itself.
IncidentKind kind_of_signal(int number);

// Returns the incident that ended the job, without time, step and exit code; nullopt if the text does not
// name one. It knows the errors of ranks ("ingot: rank 1 of 4: ..."), their watchdog's message about a late
// operation, and the lines of Open MPI's mpirun and Slurm's srun about a process that a signal ended.
std::optional<Incident> cause_in(const std::string& errors);

}  // namespace ingot
