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
#include "ingot/optim/update_sums.h"

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
  Tensor squares_on_device(Stream& stream) { return sums_->squares(stream); }
  void step_by_factor(const StepInputs& inputs, const Tensor& factor, Stream& stream);

  // Statistics of the last step that wanted them, in order of the parameters; zeros before that.
  std::span<const ParamStats> stats() const { return stats_; }
  // Number of non-finite gradients in the last step that a rule skipped, leaving weight and state
  // unchanged. Only AdamW with 8-bit states does so, since one such value would spoil the 255 others of
  // its block. Other rules let them through into the weights.
  int64_t non_finite_gradients() const { return sums_->non_finite(); }

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
  bool contributes_to_norm(size_t param) const { return members_[param].memory.param.contributes_to_norm; }

  // True if an update sends messages between ranks, which a CUDA graph cannot hold.
  bool has_messages() const { return !own_ && (!matrices_.empty() || has_reductions()); }

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
    const MatrixRule* matrix_rule = nullptr;  // `rule`, if it is one
    double weight_decay = 0;
    MomentumRamp momentum = {};
    double lr_ratio = 1;              // ratio to the base learning rate
    bool decays_vectors = false;      // the group itself sets weight_decay
    bool is_momentum_driven = false;  // a schedule sets it
  };
  struct Member {
    ParamState memory;
    size_t group;
    RuleNeeds needs;
    UpdateComm::StatePlacement keeps = {};  // for a matrix
    // Those of the current step:
    RuleStep step = {};
    Reductions reductions = {};
  };
  // Reductions over ranks, by [takes_maxima][order].
  template <typename T>
  using ByOrder = std::array<std::array<T, 2>, 2>;
  class MatrixUpdates;  // the steps of the matrix rules' updates, which comm_ orders

  static Group make_group(const OptimizerConfig& config, const GroupConfig* given, Device device);
  static std::vector<Group> make_groups(const OptimizerConfig& config, Device device);
  std::vector<Member> make_members(const OptimizerConfig& config, std::vector<OptimParam> params) const;
  // For matrix rules (optim/optimizer_matrices.cpp):
  UpdateComm& plan_matrices(UpdateComm* comm);
  void update_matrices(Stream& stream);
  const UpdateRule& rule_of(const Member& member) const { return *groups_[member.group].rule; }
  const MatrixRule* matrix_rule_of(const Member& member) const { return groups_[member.group].matrix_rule; }
  // True if the rule can update any element at any time.
  bool is_free(const Member& member) const { return !member.needs.is_whole && !matrix_rule_of(member); }
  // direction: what the update reads in addition, or writes; or empty.
  static Work update_work(const Member& member, const Tensor& direction = {});
  // The state of a member on this rank; that of a matrix may be on another rank.
  std::vector<StateSpec> kept_state(const Member& member) const;
  size_t arena_bytes() const;
  size_t scratch_bytes() const;
  void add_states(size_t param);
  RuleStep step_of(const Member& member, const StepInputs& inputs, float grad_scale,
                   const Tensor& factor) const;
  void make_step(const StepInputs& inputs, float grad_scale, const Tensor& factor, Stream& stream);
  ByOrder<int64_t> count_reductions() const;
  bool has_reductions() const;  // true if there are any
  void make_reductions(Stream& stream);
  void reduce(size_t param, int order, Stream& stream);
  void run_reductions(Stream& stream);
  ParamUpdate update_of(size_t param, const Tensor& direction = {}) const;
  void update_free(Stream& stream);
  void update_param(size_t param, const Tensor& direction, Stream& stream);
  void read_stats(Stream& stream);

  double ema_;
  Device device_;              // the parameters'
  std::vector<Group> groups_;  // the base group is the last
  std::vector<Member> members_;
  std::vector<size_t> matrices_;  // members of matrix rules; their indices here are the tasks
  std::unique_ptr<UpdateComm> own_;
  UpdateComm& comm_;
  ByOrder<int64_t> reduction_counts_;  // elements of the reductions
  Arena arena_, scratch_;
  std::vector<State> states_;
  std::unique_ptr<UpdateSums> sums_;
  ByOrder<Tensor> reductions_;  // those of this step
  std::vector<ParamStats> stats_;
  int64_t t_ = 0;
};

}  // namespace ingot
