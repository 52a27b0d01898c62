// StepRecord holds the operations of one rank in a training step, as the real trainer performs them. The
// trainer runs on addresses without memory (Backing::kAddresses), so its operations only report their costs,
// and on communicators that only note what is started and waited for.
//
// The same recording can be made of a step that computes; every operation then has the time that it took.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "ingot/comm/communicator.h"
#include "ingot/core/trace.h"
#include "ingot/core/work.h"
#include "ingot/plan/rank_program.h"

namespace ingot {

// An operation on tensors. Operations with equal keys take the same time.
struct OpKey {
  std::string name = {};  // "matmul"
  std::string form = {};  // "nt"
  DType dtype = DType::f32;
  double flops = 0, bytes = 0;
  bool operator==(const OpKey&) const = default;
  bool operator<(const OpKey& other) const {
    return std::tie(name, form, dtype, flops, bytes) <
           std::tie(other.name, other.form, other.dtype, other.flops, other.bytes);
  }
};

// A group of ranks. One that was made by splitting another holds those of its ranks that passed its color.
struct RecordedGroup {
  std::string name;
  int color = 0;
  bool operator==(const RecordedGroup&) const = default;
};

struct RecordedOp {
  ProgramOp op;  // seconds: as measured, 0 in a plan
  int key = -1;  // kCompute: index into StepRecord::keys
};

struct StepRecord {
  std::vector<OpKey> keys;            // distinct
  std::vector<std::string> names;     // of the ops: the phase and unit of a computation, "forward block 3"
  std::vector<RecordedGroup> groups;  // in order of the rank's list of groups
  std::vector<RecordedOp> ops;
  double step_s = 0;  // of a step that computes: its time as a whole
};

// PlanBoard keeps the inputs of each collective of a group, by rank, from the construction of the trainers of
// a plan. A rank that is planned again can thus read what the other ranks send.
class PlanBoard {
 public:
  // group: its name and its first world rank. call: the number of the collective in the group.
  std::vector<std::vector<std::byte>>& inputs(const std::string& group, int first_rank, int call) {
    return inputs_[{group, first_rank, call}];
  }

 private:
  std::map<std::tuple<std::string, int, int>, std::vector<std::vector<std::byte>>> inputs_;
};

// PlannedGroup holds the properties of a planned group other than its name, rank and size.
struct PlannedGroup {
  Device reach = Device::kCpu;  // the device whose tensors can be operands
  PlanBoard* board = nullptr;   // borrowed; null if the ranks know nothing of each other
  int first_rank = 0;           // world rank of the group's first
};

// Records while it is on. It must outlive its groups.
class StepRecorder final : public WorkLog, public SpanListener {
 public:
  // backing: that of the step.
  explicit StepRecorder(Backing backing) : computes_(backing == Backing::kMemory) {}
  StepRecorder(const StepRecorder&) = delete;
  StepRecorder& operator=(const StepRecorder&) = delete;

  void set_on(bool is_on) { is_on_ = is_on; }
  // Makes a group for a plan (PlannedCommunicator) whose operations are recorded.
  std::unique_ptr<Communicator> make_group(std::string name, int rank, int size, const PlannedGroup& given);
  // Returns a group that passes every operation on to `real` and records it.
  std::unique_ptr<Communicator> wrap(std::unique_ptr<Communicator> real);
  // Returns what was recorded and starts anew.
  StepRecord take();

  void begin(std::string_view operation, const Work& work) override;  // an operation
  void begin(std::string_view span) override;  // a phase or a unit; the open ones name the operations
  void end() override;                         // ends the innermost of either

 private:
  class Group;
  class RealGroup;
  using Clock = std::chrono::steady_clock;
  struct OpenOp {
    int key, name;
    Clock::time_point begin;
    double inner_s;  // spent in inner operations
  };
  enum class Opened : uint8_t { kSpan, kOp };

  std::string place(std::string_view operation) const;
  int add_name(const std::string& name);
  int add_group(const Communicator& group, int color);
  uint32_t start(int group, const CommOperation& operation);
  void wait(uint32_t ticket);

  bool computes_;
  bool is_on_ = false;
  std::vector<RecordedGroup> groups_;
  StepRecord record_;
  std::map<OpKey, int> key_index_;
  std::map<std::string, int, std::less<>> name_index_;
  std::vector<std::string> spans_;  // open ones
  std::vector<OpenOp> open_;        // operations, outermost first
  std::vector<Opened> opened_;      // of both kinds, outermost first
  uint32_t tickets_ = 0;
};

}  // namespace ingot
