// The optimizer of a model: every parameter in a group, every group with its rule, all state in one arena,
// and one pass over memory per step.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ingot/core/arena.h"
#include "ingot/core/stream.h"
#include "ingot/optim/optimizer_config.h"
#include "ingot/optim/rule.h"
#include "ingot/optim/shared_update.h"

namespace ingot {

// What a schedule says of one step.
struct StepInputs {
  double lr = 0;  // the base's learning rate; a group's has its own ratio to it
  // In place of the configured momentum of the groups of Muon and SGD with momentum; where there is none of
  // these, of beta1 of the others.
  std::optional<double> momentum = {};
  bool wants_stats = false;
};

// The momentum of a rule by itself: linear from `from` to `to` over `steps`; of Adam and its kin beta1.
struct MomentumRamp {
  double from = 0, to = 0;
  int64_t steps = 0;
  double at(int64_t t) const;  // t: 1 at the first update
};

// One parameter in one step.
struct ParamStats {
  std::string name = {};
  double weight_norm = 0;        // |w| before the update
  double grad_norm = 0;          // |g * grad_scale|, so after clipping
  double update_norm = 0;        // |change of w|
  double update_dot_weight = 0;  // <change of w, w before it>
};

class Muon;

class Optimizer : private MatrixWork {
 public:
  // The parameters' memory is borrowed; the state lies on the same device. kUsage error for a group that fits
  // no parameter, or a rule that cannot take a parameter (Muon a vector).
  // share (borrowed): with whom updates are made; absent: alone. Where there are several ranks, all of them
  // call this and step together. backing: kAddresses for an optimizer that never steps (Stream::backing).
  Optimizer(const OptimizerConfig& config, std::vector<OptimParam> params, SharedUpdate* share = nullptr,
            Backing backing = Backing::kMemory);

  // Of the groups that StepInputs::momentum drives, the first's; zero where no rule has a momentum.
  static MomentumRamp configured_momentum(const OptimizerConfig& config);

  // Norm of all gradients, in an order that depends on the parameters' sizes only. Waits for the stream.
  double grad_norm(Stream& stream);

  // One update with g * grad_scale; leaves every g zero.
  void step(const StepInputs& inputs, float grad_scale, Stream& stream);

  // Where a device judges the step (optim/cuda_verdict.h), nobody waits for it: the sums of squares that a
  // norm is made of, and an update with the factor (1) f32 that it made, or none (RuleStep::factor).
  // REQUIRES: parameters on a device; no stats.
  Tensor squares_on_device(Stream& stream);
  void step_by_factor(const StepInputs& inputs, const Tensor& factor, Stream& stream);

  // Of the last step that wanted them, in order of the parameters; zeros before there was one.
  std::span<const ParamStats> stats() const { return stats_; }
  // Gradients of the last step that were not finite and that a rule passed over, weight and state unchanged:
  // AdamW with 8-bit states, where one of them would spoil the 255 others of its block. Other rules let them
  // through into the weights.
  int64_t non_finite_gradients() const { return non_finite_; }

  // Who else has the same numbers of a state: no rank, those with the same piece of the parameter, or all
  // with any piece of it.
  enum class Keepers { kNone, kCopies, kSharers };
  struct State {
    std::string name;  // "m.blocks.0.attention.qkv.weight"
    Tensor tensor;  // of the dtype and shape that the rule declared; of 0 elements where it is not kept here
    int param = 0;
    Shape whole;  // the shape that the rule declares for the whole parameter
    // A number for each element of this rank's piece (OptimParam::boxes), or those
    // of the whole from `begin` on.
    bool is_per_element = true;
    int64_t begin = 0;
    Keepers keepers = Keepers::kCopies;
  };
  const std::vector<State>& states() const { return states_; }  // in order of the parameters
  // The moving averages of the weights (n) f32, with config.ema, by parameter; they are among the states as
  // ema.NAME. a = lerp(a, w, 1 - ema) after each step, and w itself at the first.
  Tensor average(size_t param) const { return members_[param].memory.average; }
  size_t state_bytes() const;
  size_t state_bytes(size_t param) const;
  bool is_counted(size_t param) const { return members_[param].memory.param.is_counted; }

  // "adamw for 5 tensors, muon for 8, 1.2 MB of state": the rules and what they take.
  std::string summary() const;

  const Arena& arena() const { return arena_; }
  const Arena& scratch() const { return scratch_; }
  int64_t t() const { return t_; }  // updates made
  void set_t(int64_t t) { t_ = t; }

 private:
  struct Group {
    std::unique_ptr<UpdateRule> rule;
    OptimizerKind kind = OptimizerKind::kAdamW;
    RuleParams params;
    double lr_ratio = 1;              // to the base's
    bool decays_vectors = false;      // it says so itself
    bool is_momentum_driven = false;  // by a schedule
  };
  struct Member {
    ParamState memory;
    size_t group;
    size_t block_begin, block_end;
    RuleNeeds needs;
    SharedUpdate::Keeps keeps;  // of a matrix
    SharedNumbers numbers;      // of the step that runs
  };
  // A piece of one parameter: what a thread takes at a time.
  struct Block {
    size_t param;
    Range range;
  };

  static Group make_group(const OptimizerConfig& config, const GroupConfig* given);
  static std::vector<Group> make_groups(const OptimizerConfig& config);
  std::vector<Member> make_members(const OptimizerConfig& config, std::vector<OptimParam> params) const;
  SharedUpdate& plan_matrices(SharedUpdate* share);
  const UpdateRule& rule_of(const Member& member) const { return *groups_[member.group].rule; }
  const Muon& muon_of(size_t task) const;
  // The state of a member, of which matrices may be kept elsewhere.
  std::vector<StateSpec> kept_state(const Member& member) const;
  size_t arena_bytes() const;
  size_t scratch_bytes() const;
  RuleStep step_of(const Member& member, const StepInputs& inputs, float grad_scale) const;
  void begin_step(const StepInputs& inputs, float grad_scale);
  void add_states(size_t param);
  void make_blocks(size_t param);
  void update_blocks(std::span<const size_t> blocks);
  void update_param(size_t param);
  std::array<std::array<int64_t, 2>, 2> count_numbers() const;
  void make_numbers();
  void share_numbers();
  void finish_step(bool wants_stats);
  // On a CUDA device (optim/optimizer_device.cpp):
  bool is_on_device() const { return arena_.memory() == Memory::kDevice; }
  void plan_on_device(Backing backing);
  double norm_on_device(Stream& stream);
  void update_on_device(bool wants_stats, Stream& stream);

  // What a device needs beside the state.
  struct OnDevice {
    Arena memory, pinned, scratch;
    Tensor ranges = {}, host_ranges = {};    // of the gradients (params, sizeof(SquareRange)) u8
    Tensor squares = {}, host_squares = {};  // (kSquareParts) f32
    Tensor totals = {}, host_totals = {};    // rows of 4 f32
    std::vector<int64_t> first_row = {};     // of the totals, per parameter
    int64_t longest = 0;                     // parameter
    bool has_ranges = false;                 // they have gone to the device
  };

  void prepare(size_t task, const Tensor& u) override;
  void compute(size_t task, const Tensor& u) override;
  void apply(size_t task, const Tensor& direction) override;

  double ema_;
  std::vector<Group> groups_;  // the base is the last
  std::vector<Member> members_;
  std::vector<size_t> matrices_;  // the members whose rule is Muon: the tasks
  std::unique_ptr<SharedUpdate> own_;
  SharedUpdate& share_;
  std::array<std::array<int64_t, 2>, 2> number_counts_;  // that ranks combine, [takes_maxima][turn]
  Arena arena_, scratch_;
  std::vector<State> states_;
  std::vector<Block> blocks_;
  std::vector<size_t> all_blocks_;   // their numbers
  std::vector<size_t> free_blocks_;  // of rules that need no preparation
  // Of the step that runs:
  Stream* stream_ = nullptr;
  std::array<SharedNumbers, 2> numbers_;  // of all members, [takes_maxima][turn]
  std::vector<RuleStep> steps_;           // per parameter
  std::vector<Prepared> prepared_;        // per parameter
  std::vector<RangeTotals> totals_;       // per block
  std::vector<double> squares_;           // per block
  std::vector<ParamStats> stats_;
  int64_t non_finite_ = 0;
  int64_t t_ = 0;
  std::optional<OnDevice> on_device_;
};

}  // namespace ingot
