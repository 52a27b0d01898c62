#include "ingot/plan/step_record.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace ingot {

class StepRecorder::Group final : public PlannedCommunicator {
 public:
  Group(StepRecorder& recorder, std::string name, int rank, int size, const PlannedGroup& given,
        int color = 0)
      : PlannedCommunicator(std::move(name), rank, size, given.reach),
        recorder_(recorder),
        given_(given),
        index_(recorder.add_group(*this, color)) {}

  std::unique_ptr<Communicator> split(int color, int, std::string name) override {
    return std::make_unique<Group>(recorder_, std::move(name), rank(), size(), given_, color);
  }

 private:
  uint64_t start(const CommOperation& operation) override {
    if (!recorder_.is_on_ || recorder_.computes_) PlannedCommunicator::start(operation);
    if (!recorder_.is_on_ && given_.board) use_board(operation);
    return is_recorded() ? recorder_.start(index_, operation) : 0;
  }
  void wait(uint64_t ticket) override {
    if (is_recorded()) recorder_.wait(static_cast<uint32_t>(ticket));
  }
  // Operations of a single rank take no time.
  bool is_recorded() const { return recorder_.is_on_ && size() > 1; }

  // Notes this rank's input, and uses those of the other ranks that are known and of the same size.
  void use_board(const CommOperation& o) {
    std::vector<std::vector<std::byte>>& inputs = given_.board->inputs(name(), given_.first_rank, calls_++);
    inputs.resize(static_cast<size_t>(size()));
    const auto* own = static_cast<const std::byte*>(o.in.data);
    inputs[static_cast<size_t>(rank())].assign(own, own + o.in.bytes());
    for (size_t r = 0; r < inputs.size(); ++r) {
      if (inputs[r].size() != o.in.bytes()) continue;
      if (o.kind == CommOperation::Kind::kAllGather)
        std::ranges::copy(inputs[r], static_cast<std::byte*>(o.out.data) + r * o.in.bytes());
      if (o.kind == CommOperation::Kind::kAllReduce && o.op == ReduceOp::kMax && o.in.dtype == DType::i64)
        for (int64_t i = 0; i < o.in.elements(); ++i) {
          int64_t& largest = o.out.as<int64_t>()[i];
          int64_t other = 0;
          std::memcpy(&other, inputs[r].data() + static_cast<size_t>(i) * sizeof other, sizeof other);
          largest = std::max(largest, other);
        }
    }
  }

  StepRecorder& recorder_;
  PlannedGroup given_;
  int index_;
  int calls_ = 0;
};

class StepRecorder::RealGroup final : public Communicator {
 public:
  RealGroup(StepRecorder& recorder, std::unique_ptr<Communicator> real, int color)
      : Communicator(real->name(), real->rank(), real->size()),
        recorder_(recorder),
        real_(std::move(real)),
        index_(recorder.add_group(*this, color)) {}

  std::unique_ptr<Communicator> split(int color, int key, std::string name) override {
    return std::make_unique<RealGroup>(recorder_, real_->split(color, key, std::move(name)), color);
  }
  TimeLimit& time_limit() override { return real_->time_limit(); }

 private:
  struct Running {
    Pending pending;
    uint32_t ticket = 0;  // of the record
    bool is_recorded = false;
  };

  uint64_t start(const CommOperation& operation) override {
    Running running;
    running.is_recorded = recorder_.is_on_ && size() > 1;
    if (running.is_recorded) running.ticket = recorder_.start(index_, operation);
    running.pending = pass_on(operation);
    running_.emplace(++started_, std::move(running));
    return started_;
  }
  Pending pass_on(const CommOperation& o) {
    using Kind = CommOperation::Kind;
    switch (o.kind) {
      case Kind::kBarrier:
        real_->barrier(o.name);
        return {};
      case Kind::kAllReduce:
        return real_->start_all_reduce(o.name, o.out, o.op);
      case Kind::kAllGather:
        return real_->start_all_gather_into(o.name, o.out, o.in);
      case Kind::kReduceScatter:
        return real_->start_reduce_scatter(o.name, o.out, o.in, o.op);
      case Kind::kAllToAll:
        return real_->start_all_to_all(o.name, o.out, o.in);
      case Kind::kBroadcast:
        return real_->start_broadcast(o.name, o.out, o.peer);
      case Kind::kSend:
        return real_->start_send(o.name, o.out, o.peer);
      case Kind::kReceive:
        return real_->start_receive(o.name, o.out, o.peer);
    }
    return {};
  }
  bool is_done(uint64_t ticket) override { return running_.at(ticket).pending.is_done(); }
  void wait(uint64_t ticket) override {
    Running& running = running_.at(ticket);
    if (running.is_recorded && recorder_.is_on_) recorder_.wait(running.ticket);
    running.pending.wait();
    running_.erase(ticket);
  }

  StepRecorder& recorder_;
  std::unique_ptr<Communicator> real_;
  int index_;
  uint64_t started_ = 0;
  std::map<uint64_t, Running> running_;
};

std::unique_ptr<Communicator> StepRecorder::wrap(std::unique_ptr<Communicator> real) {
  return std::make_unique<RealGroup>(*this, std::move(real), 0);
}

std::unique_ptr<Communicator> StepRecorder::make_group(std::string name, int rank, int size,
                                                       const PlannedGroup& given) {
  return std::make_unique<Group>(*this, std::move(name), rank, size, given);
}

int StepRecorder::add_group(const Communicator& group, int color) {
  groups_.push_back({group.name(), color});
  return static_cast<int>(groups_.size()) - 1;
}

StepRecord StepRecorder::take() {
  StepRecord record = std::exchange(record_, {});
  record.groups = groups_;
  key_index_.clear();
  name_index_.clear();
  tickets_ = 0;
  return record;
}

int StepRecorder::add_name(const std::string& name) {
  const auto [at, is_new] = name_index_.try_emplace(name, static_cast<int>(record_.names.size()));
  if (is_new) record_.names.push_back(name);
  return at->second;
}

// The open spans, without those that say how time is spent rather than where; and the operation if there is
// no span but "forward" or "backward".
std::string StepRecorder::place(std::string_view operation) const {
  static constexpr std::array<std::string_view, 3> kWaits{"communication", "muon communication",
                                                          "tensor parallel"};
  std::string text;
  int count = 0;
  for (const std::string& span : spans_) {
    if (std::ranges::find(kWaits, span) != kWaits.end()) continue;
    text += (text.empty() ? "" : " ") + span;
    ++count;
  }
  const bool is_pass = count == 1 && (text == "forward" || text == "backward");
  if (count == 0 || is_pass) text += (text.empty() ? "" : " ") + std::string(operation);
  return text;
}

void StepRecorder::begin(std::string_view operation, const Work& work) {
  opened_.push_back(Opened::kOp);
  if (!is_on_) return;
  OpKey key{.name = std::string(operation),
            .form = std::string(work.form),
            .dtype = work.dtype,
            .flops = work.flops,
            .bytes = work.bytes};
  const auto [at, is_new] = key_index_.try_emplace(std::move(key), static_cast<int>(record_.keys.size()));
  if (is_new) record_.keys.push_back(at->first);
  open_.push_back(
      {.key = at->second, .name = add_name(place(operation)), .begin = Clock::now(), .inner_s = 0});
}

void StepRecorder::begin(std::string_view span) {
  opened_.push_back(Opened::kSpan);
  spans_.emplace_back(span);
}

void StepRecorder::end() {
  const Opened what = opened_.back();
  opened_.pop_back();
  if (what == Opened::kSpan) return spans_.pop_back();
  if (!is_on_ || open_.empty()) return;
  const OpenOp open = open_.back();
  open_.pop_back();
  const double s = std::chrono::duration<double>(Clock::now() - open.begin).count();
  record_.ops.push_back({.op = {.name = open.name, .seconds = s - open.inner_s}, .key = open.key});
  if (!open_.empty()) open_.back().inner_s += s;
}

uint32_t StepRecorder::start(int group, const CommOperation& operation) {
  ProgramOp op{.kind = ProgramOp::Kind::kStart,
               .name = add_name(std::string(operation.name)),
               .operation = operation.kind,
               .group = group,
               .peer = operation.peer,
               .bytes = std::max(operation.out.bytes(), operation.in.bytes()),
               .ticket = tickets_++};
  record_.ops.push_back({.op = op, .key = -1});
  return op.ticket;
}

void StepRecorder::wait(uint32_t ticket) {
  ProgramOp op{.kind = ProgramOp::Kind::kWait, .ticket = ticket};
  record_.ops.push_back({.op = op, .key = -1});
}

}  // namespace ingot
