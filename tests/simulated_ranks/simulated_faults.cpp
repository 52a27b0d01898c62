// The faults of a scenario, as they happen to the ranks of a SimulatedJob.
#include <fmt/core.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <fstream>

#include "ingot/checkpoint/checkpoint_store.h"
#include "ingot/core/file.h"
#include "tests/simulated_ranks/simulated_job.h"

namespace ingot::simulated {
namespace fs = std::filesystem;

void SimulatedJob::called(int rank, bool is_save) {
  const auto index = static_cast<size_t>(rank);
  const int64_t number = ++attempt().operations[index];
  if (is_save) attempt().save_calls[index].push_back(number);
  if (now_s() >= told_s_[index]) *told_to_end_[index] = true;
  for (const Fault& fault : scenario_.faults)
    if (fault.attempt + 1 == static_cast<int>(attempts_.size()) && fault.rank == rank &&
        fault.operation == number && !death_)
      fire(fault);
}

void SimulatedJob::fire(const Fault& fault) {
  attempt().fired.push_back(fault);
  scheduler_.note(name(fault.kind));
  switch (fault.kind) {
    case Fault::Kind::kKillAndDamage:
      will_damage_ = true;
      return die(fault.rank, SIGKILL);
    case Fault::Kind::kKill:
      return die(fault.rank, SIGKILL);
    case Fault::Kind::kCrash:
      return die(fault.rank, SIGSEGV);
    case Fault::Kind::kHostLost:
      return lose_host(fault);
    case Fault::Kind::kStop:
      if (stopped_) return;
      stopped_ = {fault.rank, now_s()};
      Scheduler::current()->is_stopped = true;
      return scheduler_.pass(kNever_s);
    case Fault::Kind::kStraggle:
      return scheduler_.pass(fault.seconds);
    case Fault::Kind::kFullDisk:
      attempt().had_disk_trouble = true;
      return files_->fill_disk(now_s() + fault.seconds, fault.attempts == 1);
    case Fault::Kind::kWriteError:
      attempt().had_disk_trouble = true;
      return files_->fail_next_write(fault.rank);
    case Fault::Kind::kInterrupt:
      ++signals_;
      return;
    case Fault::Kind::kSupervisorKill:
      is_supervisor_killed_ = true;
      return;
    case Fault::Kind::kPowerCut:
      has_lost_power_ = true;
      for (Task* task : tasks_)
        if (task != Scheduler::current()) scheduler_.kill(*task);
      scheduler_.kill(*Scheduler::current());
  }
}

// The calling rank dies.
void SimulatedJob::die(int rank, int signal) {
  Task& task = *Scheduler::current();
  files_->close_all(task);
  attempt().errors +=
      fmt::format("mpirun noticed that process rank {} with PID 0 on node {} exited on signal {} ({}).\n",
                  rank, host_of(rank), signal, ::strsignal(signal));
  launcher_sees(128 + signal);
  scheduler_.kill(task);
}

void SimulatedJob::lose_host(const Fault& fault) {
  const int host = fault.rank / kRanksPerHost;
  away_until_[static_cast<size_t>(host)] = static_cast<int>(attempts_.size()) + fault.attempts;
  for (int rank = host * kRanksPerHost; rank < std::min((host + 1) * kRanksPerHost, ranks()); ++rank) {
    Task* task = tasks_[static_cast<size_t>(rank)];
    if (task == Scheduler::current()) continue;
    files_->close_all(*task);
    scheduler_.kill(*task);
  }
  die(fault.rank, SIGKILL);
}

// Cuts a file of the newest checkpoint short, or changes one of its bytes, if there is an older one.
void SimulatedJob::damage_newest() {
  const std::vector<Checkpoint> all = list_checkpoints(run_ / "checkpoints");
  if (all.size() < 2 || !verify_checkpoint(all[1].path).empty()) return;
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(all[0].path)) paths.push_back(entry.path());
  std::ranges::sort(paths);
  const fs::path path = paths[static_cast<size_t>(random_.below(std::ssize(paths)))];
  std::string bytes = read_file(path);
  if (bytes.empty()) return;
  const auto at = static_cast<size_t>(random_.below(std::ssize(bytes)));
  if (random_.chance(0.5))
    bytes.resize(at);
  else
    bytes[at] = static_cast<char>(bytes[at] ^ 1 << random_.below(8));
  std::ofstream(path, std::ios::binary) << bytes;
  saved_.erase(all[0].step);
  has_damaged_ = true;
}

}  // namespace ingot::simulated
