// What the error output of a job says about its end: the words of Ingot's ranks and of MPI's launchers.
#pragma once

#include <optional>
#include <string>

#include "ingot/launch/incident.h"

namespace ingot {

// Returns "signal 9 (SIGKILL)".
std::string signal_name(int number);
// kKilled if another process must have sent the signal, kCrashed if it is a fault of the process itself.
IncidentKind kind_of_signal(int number);

// Returns what ended the job, without time, step and exit code; nullopt if the text does not say it. Knows the
// errors of ranks ("ingot: rank 1 of 4: ..."), what their watchdog says about a late operation, and the lines of
// Open MPI's mpirun and Slurm's srun about a process that a signal ended.
std::optional<Incident> cause_in(const std::string& errors);

}  // namespace ingot
