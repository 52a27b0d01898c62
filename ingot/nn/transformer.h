// The model: embedding, blocks of attention and feed-forward, final norm and head. The list of its operations
// is built for the units and the shape of a micro-batch (program/program.h); all activations lie in a Saved
// that the caller owns.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "ingot/nn/config.h"
#include "ingot/nn/infer_batch.h"
#include "ingot/nn/layer.h"
#include "ingot/nn/loss_head.h"
#include "ingot/nn/models/model.h"
#include "ingot/nn/param_store.h"
#include "ingot/nn/program/program.h"
#include "ingot/ops/loss_sums.h"

namespace ingot {

// Sums over the counted tokens of a micro-batch.
struct LossSums {
  double loss = 0;  // nats
  int64_t counted = 0, correct = 0;
  int64_t head_tiles = 0, head_filtered = 0;  // tiles of a kRecompute head; those that its filter skipped
  RawLoss raw;                                // loss of the tokens that were checked in f32
  std::array<double, 2> rewards{};  // A batch of pairs has those of its chosen and its rejected answers.

  void add(const LossSums& other);
};

// Reads the sums of a Saved from a tensor that the host can read. The head's tiles are not in it; the
// host counts those.
LossSums read_sums(const Tensor& sums);

class Transformer {
 public:
  // The values of a micro-batch that its caller reads or writes. n is the number of this rank's rows of the
  // residual stream: N, or N / tp with sequence parallelism.
  struct Values {
    Tensor input = {};  // the message from the units before, if the units lack the embedding (models/model.h)
    Tensor x = {};      // the message to the units after, if the units lack the head
    Tensor d_x = {};    // its gradient
    Tensor d_input = {};     // the gradient of the input
    Tensor d = {};           // (n, C) the gradient of the head's input, after a forward pass that trains
    Tensor losses = {};      // (N) f32
    Tensor is_correct = {};  // (N) u8
    Tensor sums = {};        // (1 + kCheckSums, kLossTotalsBytes) u8
  };
  // A program and those of its values that a caller reads or writes.
  struct Built {
    std::shared_ptr<const Program> program;  // null if only its slot is measured
    size_t slot_bytes = 0;
    ValueId input = kNoValue, x = kNoValue, d_x = kNoValue, d_input = kNoValue, norm = kNoValue;
    Losses losses{kNoValue, kNoValue, kNoValue};

    Values values(const Tensor& slot) const;
  };
  // The memory of a micro-batch of B sequences of T tokens, and the programs that run on it: forward with
  // gradients and backward, and forward alone.
  struct Saved {
    int64_t B = 0, T = 0;
    UnitRange units;             // the units that forward and backward run
    RecomputePlan plan;          // plan of the units' blocks
    Built training, evaluation;  // the first has no program if the plan is forward-only
    Tensor slot;
    Values in_training, in_evaluation;

    // Scratch of forward and backward.
    size_t scratch_bytes() const {
      return std::max(training.program ? training.program->scratch_bytes() : 0,
                      evaluation.program->scratch_bytes());
    }
    // Takes a slot of at least the given size from an arena: a copy then serves another micro-batch by the
    // same programs.
    void take_slot(Arena& arena, size_t least_bytes = 0);
  };

  // REQUIRES: config is resolved and its vocab set. tp describes the tensor-parallel ranks, all of which
  // make the same calls of forward, backward and infer, with the same batch and a Region that connects
  // them; every rank gets all losses and logits.
  Transformer(const ModelConfig& config, DType compute, const HeadConfig& head = {},
              const Fp8LinearConfig& fp8 = {}, const TensorParallel& tp = {},
              const BlockExtension& extension = {});

  const ModelConfig& config() const { return config_; }
  const TensorParallel& tp() const { return tp_; }
  const ParamList& params() const { return params_; }
  DType compute() const { return compute_; }

  // Allocates the activations of a micro-batch (on a measuring arena: measures them) for a plan, by
  // default that of RecomputeConfig. REQUIRES: with sequence parallelism, the number of ranks divides B*T,
  // unless the plan is forward-only.
  Saved make_saved(Arena& arena, int64_t B, int64_t T) const;
  Saved make_saved(Arena& arena, int64_t B, int64_t T, const RecomputePlan& plan) const;
  // Does so for some units only; the plan covers only their blocks. The slot has least_slot_bytes or more;
  // what would lie in scratch lies in the slot where it has room.
  Saved make_saved(Arena& arena, int64_t B, int64_t T, const RecomputePlan& plan, UnitRange units,
                   size_t least_slot_bytes = 0) const;
  UnitRange all_units() const { return {0, head_unit() + 1}; }
  // The id of the parameter that the head multiplies by: the embedding's if they are tied.
  int head_weight() const { return layers_.head_weight(); }
  // True if a parameter of a unit before `unit` is trained, so that backward needs the gradient of what goes
  // into `unit`.
  bool trains_below(int unit) const;
  // The shape of the message to the units from `first` on for a micro-batch of B sequences of T tokens: (n,
  // C) of the residual stream, or the elements of several values.
  Shape message_shape(int first, int64_t B, int64_t T) const;
  // The most elements of a message between any two units.
  int64_t largest_message(int64_t B, int64_t T) const;
  // Bytes of the slot that make_saved allocates.
  size_t slot_bytes(int64_t B, int64_t T, const RecomputePlan& plan, UnitRange units, Device device) const;
  // Scratch bytes of the passes on what make_saved returns for a plan (by default that of RecomputeConfig)
  // and units, and of evaluation.
  size_t scratch_bytes(int64_t B, int64_t T, bool is_training, Device device = Device::kCpu) const;
  size_t scratch_bytes(int64_t B, int64_t T, const RecomputePlan& plan, UnitRange units, Device device) const;
  // Copies the model's own table (of rotary positions) to the stream's device. REQUIRED before the model
  // runs on a CUDA device.
  void bring_to_device(Stream& stream);
  // Tells the model that micro-batches will have documents, which scratch_bytes depends on.
  void expect_documents() { has_documents_ = true; }

  // Computes the losses of the batch. With grad_scale != 0 it also computes the gradients of grad_scale *
  // (sum of losses) in the head, and saved.in_training.d, from which backward continues. With checked_tokens
  // > 0 it computes the losses of that many tokens once more in f32. On a CUDA stream the sums in the result
  // are 0, since they are not known when the call returns; the sums of saved.in_training, or of
  // saved.in_evaluation, hold them (read_sums).
  //
  // If the units lack the embedding, forward starts from `input` (the output of the units before) and
  // backward leaves the gradient of it in `d_input`. If they lack the head, forward ends with `x` and
  // computes no losses, and backward starts from the gradient of `x` in `d_x`.
  LossSums forward(LayerContext& ctx, const MicroBatch& batch, const Saved& saved, float grad_scale,
                   int64_t checked_tokens = 0) const;
  // Adds the gradients of all other parameters, recomputing what saved.plan says. REQUIRES: forward ran
  // with grad_scale != 0 on this saved, with the same dropout; the plan is not forward-only.
  void backward(LayerContext& ctx, const MicroBatch& batch, const Saved& saved) const;

  // Times the ops of block 0 and the embedding for B sequences of T tokens by the clock of the stream's
  // device, each as the median of three runs on memory of its own. REQUIRES: the weights have been
  // written; bring_to_device was called.
  BlockTimes time_block(ParamStore& params, int64_t B, int64_t T, Stream& stream) const;

  // Tokens per chunk of the head for a micro-batch of N tokens.
  int64_t head_chunk(int64_t N, Device device = Device::kCpu) const { return head_.chunk(N, device); }
  // Names of the tensors that training casts to FP8, in the order of LayerContext::fp8.
  const std::vector<std::string>& fp8_tensors() const { return layers_.fp8_tensors; }
  // The weights whose codes ctx.fp8 can hold (Fp8State::hold_weights), and their casts, which precede the
  // micro-batches of every step. cast_weights does nothing for weights that are not held.
  std::vector<Fp8State::Weight> fp8_weights() const;
  void cast_weights(LayerContext& ctx) const;

  // Generation: appends the batch's tokens to the caches, one per block, and writes the logits (output_rows,
  // Vp) f32 of the tokens that want them, uncapped; columns >= config().vocab are undefined. The batch's ids
  // are on the stream's device. REQUIRES: the caches hold every earlier position of its sequences.
  std::vector<KvCache> make_caches(Arena& arena, int64_t slots, int64_t positions) const;
  void infer(LayerContext& ctx, const InferBatch& batch, const std::vector<KvCache>& caches,
             const Tensor& logits) const;
  // The signature of infer(), which Executor::infer has, too; bound_infer() is this model's.
  using Infer = std::function<void(LayerContext& ctx, const InferBatch& batch,
                                   const std::vector<KvCache>& caches, const Tensor& logits)>;
  Infer bound_infer() const {
    return [this](LayerContext& ctx, const InferBatch& batch, const std::vector<KvCache>& caches,
                  const Tensor& logits) { infer(ctx, batch, caches, logits); };
  }
  // infer() for some units. Without the embedding it starts from the message `in`; without the head it writes
  // the message `out` to the next units, and no logits (message_shape, for one sequence of batch.rows()
  // tokens). The two may share memory.
  void infer_units(LayerContext& ctx, const InferBatch& batch, UnitRange units, const Tensor& in,
                   const Tensor& out, const std::vector<KvCache>& caches, const Tensor& logits) const;
  // Scratch for batches of up to n rows, all of which may want logits.
  size_t infer_scratch_bytes(int64_t n, const CacheShape& caches, Device device = Device::kCpu) const;
  // Caps logits in host memory, in place.
  void cap_logits(std::span<float> logits) const;

 private:
  int head_unit() const { return layers_.head_unit(); }
  static bool has_embedding(UnitRange units) { return units.first == 0; }
  bool has_head(UnitRange units) const { return units.end == head_unit() + 1; }
  // The scope of the messages at an end of the units.
  Scope scope_of(int unit) const { return {.unit = unit, .block = unit == head_unit() ? -1 : unit - 1}; }
  // The model's index of the first block of the units, and the number of their blocks.
  static size_t first_block(UnitRange units) { return static_cast<size_t>(std::max(units.first, 1) - 1); }
  size_t block_count(UnitRange units) const {
    return static_cast<size_t>(std::min(units.end, head_unit()) - 1) - first_block(units);
  }
  const Tensor& rope_table_on(const Stream& stream) const {
    return stream.device == Device::kCuda ? device_rope_table_ : rope_table_;
  }
  ValueId message_value(Builder& b, const char* name, size_t block) const;

  enum class Use { kTraining, kEvaluation, kGeneration };
  struct BuildOptions {
    CacheShape caches = {};       // only generation has them
    size_t least_slot_bytes = 0;  // assign_addresses
    bool joins_products = true;   // false: to time each operation by itself
    bool is_measured = false;     // only the bytes of a slot are wanted
  };
  Built build(Use use, int64_t B, int64_t T, const RecomputePlan& plan, UnitRange units, Device device,
              const BuildOptions& options) const;
  // Returns the program of one pass of generation; the last few are kept.
  Built infer_program(int64_t rows, UnitRange units, const CacheShape& caches, Device device) const;
  // A decoder asks for few shapes in turn: that of its prompt, and that of single tokens.
  struct InferPrograms {
    static constexpr size_t kMax = 4;
    struct Entry {
      std::array<int64_t, 6> key;
      Built built;
    };
    std::mutex mutex;
    std::list<Entry> entries;  // the last one used first
  };
  // Writes the logits of `batch` from h, this rank's rows of the final norm's output.
  void infer_logits(LayerContext& ctx, const InferBatch& batch, const Tensor& h, const Tensor& logits) const;
  struct InferScratch {
    Tensor slot = {};
    Tensor rope = {},
           positions =
               {};  // rows (N, D) f32 and (N, C) of the tables of positions; empty where the model has none
  };
  InferScratch infer_scratch(Arena& arena, int64_t n, const Program& program) const;
  struct LogitScratch {
    Tensor all;      // (N, C) h of all ranks; empty if h has all rows
    Tensor outputs;  // (N, C) the rows of it whose logits are wanted
  };
  LogitScratch logit_scratch(Arena& arena, int64_t N) const;

  ModelConfig config_;
  DType compute_;
  TensorParallel tp_;
  ParamList params_;
  ModelLayers layers_;
  LossHead head_;
  bool has_fp8_ = false, has_documents_ = false;
  std::vector<float> rope_;  // (context, rotated dims); empty without rotary positions
  Tensor rope_table_;
  std::optional<Arena> device_tables_;
  Tensor device_rope_table_;
  std::shared_ptr<InferPrograms> infer_programs_ = std::make_shared<InferPrograms>();
};

}  // namespace ingot
