#include "ingot/launch/local_job.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstring>
#include <system_error>
#include <thread>

#include "ingot/checkpoint/checkpoint_store.h"
#include "ingot/core/error.h"
#include "ingot/core/process/descendants.h"
#include "ingot/launch/elastic.h"
#include "ingot/launch/error_tee.h"
#include "ingot/launch/job_errors.h"
#include "ingot/run/record/run_status.h"
#include "ingot/run/run.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr double kAllSigns_s = 0.5;  // between two readings of all ranks' signs; rank 0's is read every time
constexpr double kGone_s = 10;       // a killed process is gone so soon, or it waits for a dead device
constexpr double kAnswer_s = 15;     // a host that takes longer to start a process is lost

void sleep_s(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

bool is_same(const ProcessIdentity& a, const ProcessIdentity& b) {
  return a.pid == b.pid && a.start_ticks == b.start_ticks && a.host == b.host && a.boot_id == b.boot_id;
}

// Returns the newest sign of every rank in the run's folder, whichever attempt it belongs to.
std::map<int, HeartbeatSign> all_signs(const fs::path& run) {
  std::map<int, HeartbeatSign> signs;
  if (const auto sign = read_heartbeat(run)) signs[0] = *sign;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run / "ranks", error)) {
    const std::string name = entry.path().filename().string();
    int rank = 0;
    const auto [end, fault] = std::from_chars(name.data(), name.data() + name.size(), rank);
    if (fault != std::errc() || end != name.data() + name.size()) continue;
    if (const auto sign = read_heartbeat(entry.path())) signs[rank] = *sign;
  }
  return signs;
}

// /dev/null for a child's input.
class NoInput {
 public:
  NoInput() : fd_(::open("/dev/null", O_RDWR | O_CLOEXEC)) {}
  ~NoInput() { ::close(fd_); }
  NoInput(const NoInput&) = delete;
  NoInput& operator=(const NoInput&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

std::vector<HostSlots> parse_hosts(const std::string& text) {
  std::vector<HostSlots> hosts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string host = text.substr(begin, end - begin);
    const size_t colon = host.find(':');
    HostSlots slots{.name = host.substr(0, colon)};
    if (colon != std::string::npos) {
      const char* last = host.data() + host.size();
      const auto [stop, error] = std::from_chars(host.data() + colon + 1, last, slots.slots);
      if (error != std::errc() || stop != last) slots.slots = 0;
    }
    if (slots.name.empty() || slots.slots < 1)
      fail(ErrorKind::kUsage, "--hosts: \"{}\" is no list like node1:8,node2:8", text);
    hosts.push_back(slots);
    begin = end + 1;
  }
  return hosts;
}

LocalJob::LocalJob(LocalJobOptions options, const std::atomic<int>& signals,
                   std::function<void(const std::string&)> say)
    : options_(std::move(options)),
      signals_(signals),
      say_(std::move(say)),
      layout_(options_.config.parallel),
      hosts_(options_.hosts) {
  adopt_orphans();
}

LocalJob::~LocalJob() {
  if (child_ && !child_->poll()) kill();
}

bool LocalJob::is_resume() const { return !list_checkpoints(options_.run / "checkpoints").empty(); }

bool LocalJob::has_folder() {
  std::error_code error;
  return (signs_.empty() && before_.empty()) || fs::is_directory(options_.run, error);
}

int64_t LocalJob::saved_step() {
  const std::vector<Checkpoint> saved = list_checkpoints(options_.run / "checkpoints");
  return saved.empty() ? -1 : saved.front().step;
}

std::vector<std::string> LocalJob::command() const {
  std::vector<std::string> words = options_.launcher;
  if (!words.empty()) {
    words.insert(words.end(), {"-n", std::to_string(layout_.ranks())});
    std::string hosts;
    for (const HostSlots& host : hosts_)
      hosts += fmt::format("{}{}:{}", hosts.empty() ? "" : ",", host.name, host.slots);
    if (!hosts.empty()) words.insert(words.end(), {"--host", hosts});
  }
  words.insert(words.end(), {options_.program, "train"});
  words.insert(words.end(), options_.train.begin(), options_.train.end());
  if (is_resume())
    words.emplace_back("--resume");
  else
    words.insert(words.end(), {"--set", "checkpoint.at_start=true"});
  const ParallelConfig& given = options_.config.parallel;
  if (layout_.dp != given.dp) words.insert(words.end(), {"--set", fmt::format("parallel.dp={}", layout_.dp)});
  if (layout_.fsdp != given.fsdp)
    words.insert(words.end(), {"--set", fmt::format("parallel.fsdp={}", layout_.fsdp)});
  return words;
}

// Returns true if the launcher can start a process on the host.
bool LocalJob::answers(const HostSlots& host) const {
  std::vector<std::string> words = options_.launcher;
  words.insert(words.end(), {"-n", "1", "--host", host.name, "true"});
  const NoInput none;
  ChildProgram probe(words, {.input = none.fd(), .output = none.fd(), .errors = none.fd()});
  const auto end = Clock::now() + std::chrono::duration<double>(kAnswer_s);
  while (Clock::now() < end && signals_.load() == 0) {
    if (const auto code = probe.poll()) return *code == 0;
    sleep_s(0.02);
  }
  return false;
}

// Called before every attempt: leaves out the hosts that do not answer, and takes back those that
// answer again.
void LocalJob::prepare() {
  if (options_.hosts.empty()) return;
  std::vector<HostSlots> left;
  int slots = 0;
  for (const HostSlots& host : options_.hosts) {
    if (answers(host)) {
      left.push_back(host);
      slots += host.slots;
    } else {
      say_(fmt::format("the host {} does not answer", host.name));
    }
  }
  end_descendants(kGone_s);
  const std::optional<ParallelConfig> layout = layout_for(options_.config, slots);
  if (!layout) {
    say_(fmt::format("{} {} left, which no layout of this run fits; trying all of them", slots,
                     slots == 1 ? "rank is" : "ranks are"));
    return;
  }
  if (layout->ranks() != layout_.ranks()) say_(fmt::format("going on with {}", layout->to_string()));
  hosts_ = left;
  layout_ = *layout;
}

void LocalJob::start() {
  before_ = all_signs(options_.run);
  signs_.clear();
  next_read_s_ = 0;
  child_.reset();
  const NoInput none;
  if (!options_.launcher.empty()) errors_ = std::make_unique<ErrorTee>();
  child_.emplace(command(), ChildStreams{.input = none.fd(),
                                         .output = STDOUT_FILENO,
                                         .errors = errors_ ? errors_->input() : STDERR_FILENO,
                                         .death_signal = SIGUSR1});
}

void LocalJob::read_signs() {
  const auto add = [&](int rank, const HeartbeatSign& sign) {
    const auto old = before_.find(rank);
    if (old == before_.end() || !is_same(old->second.process, sign.process)) signs_[rank] = sign;
  };
  if (now_s() >= next_read_s_) {
    next_read_s_ = now_s() + kAllSigns_s;
    for (const auto& [rank, sign] : all_signs(options_.run)) add(rank, sign);
  } else if (const auto lead = read_heartbeat(options_.run)) {
    add(0, *lead);
  }
}

std::vector<RankSign> LocalJob::signs() {
  read_signs();
  std::vector<RankSign> signs;
  for (const auto& [rank, sign] : signs_)
    signs.push_back({.rank = rank,
                     .host = sign.process.host,
                     .phase = sign.phase,
                     .count = sign.count,
                     .step = sign.step,
                     .first_step = sign.first_step,
                     .limit_s = sign.limit_s,
                     .is_gone = liveness(sign.process, sign.time_s) == Liveness::kGone,
                     .is_stopped = is_stopped(sign.process)});
  return signs;
}

std::optional<JobEnd> LocalJob::end() {
  const std::optional<int> code = child_->poll();
  if (!code) return std::nullopt;
  read_signs();
  const int left = end_descendants(kGone_s);
  if (left > 0)
    say_(fmt::format("{} process{} of the job had not ended, and {} killed", left, left == 1 ? "" : "es",
                     left == 1 ? "was" : "were"));
  const std::string errors = errors_ ? errors_->finish() : "";
  errors_.reset();
  const JobEnd::Status how = status(*code);
  return JobEnd{.status = how, .cause = how == JobEnd::Status::kFailed ? cause(*code, errors) : Incident{}};
}

// A launcher's exit code need not be that of the ranks, so the run's record decides.
JobEnd::Status LocalJob::status(int code) const {
  if (code == kExitInterrupted) return JobEnd::Status::kInterrupted;
  if (code == 0) return is_complete() ? JobEnd::Status::kCompleted : JobEnd::Status::kFailed;
  const auto lead = signs_.find(0);
  if (lead == signs_.end()) return JobEnd::Status::kFailed;
  // A launcher whose ranks have ended dies of a further request to end. Ranks that end while they read their
  // text leave no record.
  const bool dies_of_request = signals_ > 0 && !options_.launcher.empty() && code == 128 + SIGUSR1;
  try {
    const auto record = read_run_status(options_.run);
    if (!record || record->pid != lead->second.process.pid)
      return dies_of_request ? JobEnd::Status::kInterrupted : JobEnd::Status::kFailed;
    if (record->status == "interrupted") return JobEnd::Status::kInterrupted;
  } catch (const Error&) {  // the record is damaged; the exit code stands
  }
  return JobEnd::Status::kFailed;
}

// Returns true if the record says that the run has made all of its steps, or those until train.stop_at.
bool LocalJob::is_complete() const {
  try {
    const auto record = read_run_status(options_.run);
    return record && (record->status == "completed" || record->status == "stopped");
  } catch (const Error&) {  // the record is damaged
    return false;
  }
}

Incident LocalJob::cause(int code, const std::string& errors) const {
  Incident incident = cause_in(errors).value_or(Incident{});
  incident.exit_code = code == 0 ? 1 : code;
  if (code == 0) {
    incident.reason = fmt::format("{} ended with exit code 0, and {} has no record of a run that is complete",
                                  options_.launcher.empty() ? options_.program : options_.launcher.front(),
                                  options_.run.string());
    return incident;
  }
  if (!incident.reason.empty()) {
    const auto sign = incident.rank ? signs_.find(*incident.rank) : signs_.end();
    if (incident.host.empty() && sign != signs_.end()) incident.host = sign->second.process.host;
    return incident;
  }
  if (!options_.launcher.empty()) {
    incident.reason = code > 128 ? "the launcher: " + signal_name(code - 128)
                                 : fmt::format("the launcher ended with exit code {}", code);
    if (code > 128) incident.kind = kind_of_signal(code - 128);
    return incident;
  }
  incident.rank = 0;
  if (const auto lead = signs_.find(0); lead != signs_.end()) incident.host = lead->second.process.host;
  if (code > 128) {
    incident.kind = kind_of_signal(code - 128);
    incident.reason = signal_name(code - 128);
    return incident;
  }
  incident.reason = fmt::format("exit code {}", code);
  try {
    const auto record = read_run_status(options_.run);
    if (record && record->pid == child_->pid() && !record->error.empty()) incident.reason = record->error;
  } catch (const Error&) {  // the record is damaged
  }
  return incident;
}

// mpirun and srun pass SIGUSR1 on to the ranks. After a SIGTERM, mpirun would kill them within a second.
void LocalJob::ask_to_end() { child_->signal(SIGUSR1); }

void LocalJob::kill() {
  read_signs();
  for (const auto& [rank, sign] : signs_)
    if (liveness(sign.process, sign.time_s) == Liveness::kRuns)
      ::kill(static_cast<pid_t>(sign.process.pid), SIGKILL);
  // The launcher ends the ranks on other machines. It is given the time to notice.
  child_->signal(SIGTERM);
  const auto end = Clock::now() + std::chrono::seconds(5);
  while (!child_->poll() && Clock::now() < end) sleep_s(0.02);
  child_->signal(SIGKILL);
  while (!child_->poll()) sleep_s(0.005);
  end_descendants(kGone_s);
  if (errors_) errors_->finish();
  errors_.reset();
}

double LocalJob::now_s() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

void LocalJob::pause(double seconds) {
  const int before = signals_.load();
  const double end_s = now_s() + seconds;
  while (now_s() < end_s && signals_.load() == before)
    sleep_s(std::min(0.02, std::max(0.0, end_s - now_s())));
}

}  // namespace ingot
