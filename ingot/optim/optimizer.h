// The optimizer of a model: it assigns every parameter to a group and every group to a rule, holds all
// state in one arena, and makes one pass over memory per step.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ingot/core/arena.h"
#include "ingot/core/stream.h"
#include "ingot/core/work.h"
#include "ingot/optim/optimizer_config.h"
#include "ingot/optim/rule.h"
#include "ingot/optim/rules/all_rules.h"
#include "ingot/optim/update_comm.h"

namespace ingot {

// Values of the schedules for one step.
struct StepInputs {
  double lr = 0;  // the base learning rate; each group has a fixed ratio to it
  // Replaces the configured momentum of the groups of Muon and SGD with momentum or, if there are none,
  // beta1 of the other groups.
  std::optional<double> momentum = {};
  int64_t window = 0;  // attention has it in place of a larger one of the model; 0: it has the model's
  bool wants_stats = false;
};

// Statistics of one parameter in one step.
struct ParamStats {
  std::string name = {};
  double weight_norm = 0;        // |w| before the update
  double grad_norm = 0;          // |g * grad_scale|, i.e. after clipping
  double update_norm = 0;        // |change of w|
  double update_dot_weight = 0;  // <change of w, w before it>
};

class Optimizer {
 public:
  // Borrows the parameters' memory; the state lies on the same device. Throws a kUsage error if a group
  // matches no parameter, or if a rule cannot take a parameter (Muon takes no vector). comm (borrowed):
  // communication used by updates; null on a single rank. With several ranks, all of them call the
  // constructor and step together. backing: kAddresses for a plan (Stream::backing).
  Optimizer(const OptimizerConfig& config, std::vector<OptimParam> params, UpdateComm* comm = nullptr,
            Backing backing = Backing::kMemory);

  // The momentum of the first group that StepInputs::momentum drives; zero if no rule has a momentum.
  static MomentumRamp configured_momentum(const OptimizerConfig& config);

  // Returns the norm of all gradients, summed in an order that depends only on the parameters' sizes.
  // Synchronises with the stream.
  double grad_norm(Stream& stream);

  // Makes one update with g * grad_scale and zeroes every g that is not kept.
  void step(const StepInputs& inputs, float grad_scale, Stream& stream);

  // For steps that a device checks itself (optim/cuda_step_check.h), so that the host does not wait:
  // squares_on_device computes the sums of squares for the norm, and step_by_factor updates with a factor
  // (1) f32 on the device, or not at all if it is NaN (RuleStep::factor). REQUIRES: the parameters are on
  // a device; no stats.
  Tensor squares_on_device(Stream& stream);
  void step_by_factor(const StepInputs& inputs, const Tensor& factor, Stream& stream);

  // Statistics of the last step that wanted them, in order of the parameters; zeros before that.
  std::span<const ParamStats> stats() const { return stats_; }
  // Number of non-finite gradients in the last step that a rule skipped, leaving weight and state
  // unchanged. Only AdamW with 8-bit states does so, since one such value would spoil the 255 others of
  // its block. Other rules let them through into the weights.
  int64_t non_finite_gradients() const { return non_finite_; }

  // ReplicaScope names the other ranks that hold the same values of a state: none, those with the same shard
  // of the parameter, or all with any shard of it.
  enum class ReplicaScope { kNone, kReplicas, kShardGroup };
  struct State {
    std::string name;    // "m.blocks.0.attention.qkv.weight"
    Tensor tensor;       // with the rule's dtype and shape; 0 elements if it is not on this rank
    int param = 0;       // OptimParam::id
    int64_t copies = 0;  // OptimParam::copies
    Shape whole;         // the shape that the rule declares for the whole parameter
    // True if there is one number per element of this rank's shard (OptimParam::rects). Otherwise the
    // tensor holds the numbers of the whole parameter from `begin` on.
    bool is_per_element = true;
    int64_t begin = 0;
    ReplicaScope scope = ReplicaScope::kReplicas;
  };
  const std::vector<State>& states() const { return states_; }  // in order of the parameters
  // The number of a state's elements, the first ones, that no other shard's rank has.
  int64_t saved_elements(const State& state) const {
    return std::max<int64_t>(0, state.tensor.elements() - (state.is_per_element ? state.copies : 0));
  }
  // The moving average of a parameter's weights (n) f32, with config.ema; it is also among the states, as
  // ema.NAME. After each step a = lerp(a, w, 1 - ema); after the first a = w.
  Tensor average(size_t param) const { return members_[param].memory.average; }
  size_t state_bytes() const;
  size_t state_bytes(size_t param) const;
  bool is_counted(size_t param) const { return members_[param].memory.param.is_counted; }

  // True if an update sends messages between ranks, which a CUDA graph cannot hold.
  bool has_messages() const { return !own_ && (!matrices_.empty() || has_numbers()); }

  // The rules and their memory, such as "adamw for 5 tensors, muon for 8, 1.2 MB of state".
  std::string summary() const;

  const Arena& arena() const { return arena_; }
  const Arena& scratch() const { return scratch_; }
  int64_t t() const { return t_; }  // updates made
  void set_t(int64_t t) { t_ = t; }

 private:
  struct Group {
    const RuleEntry* entry = nullptr;
    std::unique_ptr<UpdateRule> rule;
    std::unique_ptr<DeviceRule> device_rule;
    const MatrixRule* matrix_rule = nullptr;               // `rule`, if it is one
    const DeviceMatrixRule* device_matrix_rule = nullptr;  // `device_rule`, if it is one
    double weight_decay = 0;
    MomentumRamp momentum = {};
    double lr_ratio = 1;              // ratio to the base learning rate
    bool decays_vectors = false;      // the group itself sets weight_decay
    bool is_momentum_driven = false;  // a schedule sets it
  };
  struct Member {
    ParamState memory;
    size_t group;
    size_t block_begin, block_end;
    RuleNeeds needs;
    UpdateComm::Keeps keeps;  // for a matrix
    SharedNumbers numbers;    // numbers of the current step
  };
  // A range of one parameter that a thread updates at a time.
  struct Block {
    size_t param;
    Range range;
    RangeTotals totals = {};  // the current step's
    double squares = 0;       // sum of the squared gradients, for the norm
  };
  // Numbers that ranks combine, by [takes_maxima][turn].
  template <typename T>
  using ByTurn = std::array<std::array<T, 2>, 2>;
  // ParamStep holds a parameter's data of the current step.
  struct ParamStep {
    RuleStep inputs;
    Prepared prepared;
  };
  class MatrixUpdates;  // the steps of the matrix rules' updates, which comm_ orders

  static Group make_group(const OptimizerConfig& config, const GroupConfig* given);
  static std::vector<Group> make_groups(const OptimizerConfig& config);
  std::vector<Member> make_members(const OptimizerConfig& config, std::vector<OptimParam> params) const;
  // For matrix rules (optim/optimizer_matrices.cpp):
  UpdateComm& plan_matrices(UpdateComm* comm);
  void update_matrices(Stream& stream);
  const UpdateRule& rule_of(const Member& member) const { return *groups_[member.group].rule; }
  const MatrixRule* matrix_rule_of(const Member& member) const { return groups_[member.group].matrix_rule; }
  // True if the rule needs no preparation before it can update any element.
  bool is_free(const Member& member) const { return !member.needs.is_whole && !matrix_rule_of(member); }
  static Work update_work(const Member& member);
  // The state of a member on this rank; that of a matrix may be on another rank.
  std::vector<StateSpec> kept_state(const Member& member) const;
  size_t arena_bytes() const;
  size_t scratch_bytes(const Member& member) const;  // what its rule needs
  size_t scratch_bytes() const;
  RuleStep step_of(const Member& member, const StepInputs& inputs, float grad_scale) const;
  void begin_step(const StepInputs& inputs, float grad_scale);
  void add_states(size_t param);
  void make_blocks(size_t param);
  void update_block(Block& block) const;
  void update_param(size_t param);
  ByTurn<int64_t> count_numbers() const;
  bool has_numbers() const;  // true if ranks combine any
  void make_numbers(Stream& stream);
  void measure(size_t param, int turn, Stream& stream);
  void share_numbers(Stream& stream);
  void update_free(Stream& stream);
  void finish_step(bool wants_stats);
  // On a CUDA device (optim/optimizer_device.cpp):
  bool is_on_device() const { return arena_.memory() == Memory::kDevice; }
  void plan_on_device(Backing backing);
  double norm_on_device(Stream& stream);
  void update_on_device(bool wants_stats, Stream& stream);
  void update_on_device(size_t param, Stream& stream);
  void update_free_on_device(Stream& stream);
  Tensor wanted_totals(size_t param) const;
  void read_totals(Stream& stream);

  // OnDevice holds the memory that a device needs in addition to the state and the scratch.
  struct OnDevice {
    Arena memory, pinned;
    Tensor ranges = {}, host_ranges = {};    // the gradients'; (params, sizeof(SquareRange)) u8
    Tensor squares = {}, host_squares = {};  // (kSquareParts) f32
    Tensor totals = {}, host_totals = {};    // totals, 4 f32 per row
    std::vector<int64_t> first_row = {};     // where a parameter's totals begin
    int64_t longest = 0;                     // elements of the longest parameter
    bool has_ranges = false;                 // true once ranges have been copied to the device

    Tensor totals_of(size_t param) const;
  };

  double ema_;
  std::vector<Group> groups_;  // the base group is the last
  std::vector<Member> members_;
  std::vector<size_t> matrices_;  // members of matrix rules; their indices here are the tasks
  std::unique_ptr<UpdateComm> own_;
  UpdateComm& comm_;
  ByTurn<int64_t> number_counts_;  // how many numbers ranks combine
  Arena arena_, scratch_;
  std::vector<State> states_;
  std::vector<Block> blocks_;
  std::vector<size_t> free_blocks_;  // blocks whose rule needs no preparation
  ByTurn<Tensor> numbers_;           // what all members use in the current step
  std::vector<ParamStep> steps_;     // per parameter
  std::vector<ParamStats> stats_;
  int64_t non_finite_ = 0;
  int64_t t_ = 0;
  std::optional<OnDevice> on_device_;
};

}  // namespace ingot
