#include "ingot/plan/step_record.h"

#include <algorithm>
#include <array>
#include <utility>

namespace ingot {

class StepRecorder::Group final : public PlannedCommunicator {
 public:
  Group(StepRecorder& recorder, std::string name, int rank, int size, Device reach, int color = 0)
      : PlannedCommunicator(std::move(name), rank, size, reach),
        recorder_(recorder),
        reach_(reach),
        index_(recorder.add_group(*this, color)) {}

  std::unique_ptr<Communicator> split(int color, int, std::string name) override {
    return std::make_unique<Group>(recorder_, std::move(name), rank(), size(), reach_, color);
  }

 private:
  uint64_t start(const CommOperation& operation) override {
    if (!recorder_.is_on_ || recorder_.computes_) PlannedCommunicator::start(operation);
    return is_recorded() ? recorder_.start(index_, operation) : 0;
  }
  void wait(uint64_t ticket) override {
    if (is_recorded()) recorder_.wait(static_cast<uint32_t>(ticket));
  }

  // Operations of a single rank take no time.
  bool is_recorded() const { return recorder_.is_on_ && size() > 1; }

  StepRecorder& recorder_;
  Device reach_;
  int index_;
};

std::unique_ptr<Communicator> StepRecorder::make_group(std::string name, int rank, int size, Device reach) {
  return std::make_unique<Group>(*this, std::move(name), rank, size, reach);
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
