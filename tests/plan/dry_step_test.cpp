// Tests that a step that is recorded without computing lists the operations of a step that computes.
#include "ingot/plan/dry_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "ingot/parallel/parallelize.h"
#include "tests/config/built_config.h"

namespace ingot {
namespace {

struct Case {
  const char* name;
  const char* preset;
  std::vector<std::string> settings;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

RunConfig config_of(const Case& c) {
  RunConfig config = built_config(
      c.preset, {"model.layers=2", "model.context=32", "train.batch_size=4", "train.grad_accum=4"},
      c.settings);
  config.model.vocab = 96;
  return config;
}

class DryStep : public testing::TestWithParam<Case> {};

std::string text_of(const StepRecord& record, const RecordedOp& op) {
  if (op.key < 0)
    return fmt::format("{} {} group {} bytes {}", static_cast<int>(op.op.kind),
                       record.names[static_cast<size_t>(op.op.name)], op.op.group, op.op.bytes);
  const OpKey& key = record.keys[static_cast<size_t>(op.key)];
  return fmt::format("{}: {} {} {} flops {} bytes {}", record.names[static_cast<size_t>(op.op.name)],
                     key.name, key.form, name(key.dtype), key.flops, key.bytes);
}

TEST_P(DryStep, ListsWhatAComputingStepDoes) {
  const RunConfig config = config_of(GetParam());
  const MeshShape shape = mesh_shape(config.parallel);
  for (int rank = 0; rank < shape.size(); ++rank) {
    const StepRecord plan = record_step(config, shape, rank), real = measure_step(config, shape, rank, 0);
    ASSERT_EQ(plan.groups, real.groups);
    for (size_t i = 0; i < std::min(plan.ops.size(), real.ops.size()); ++i)
      ASSERT_EQ(text_of(plan, plan.ops[i]), text_of(real, real.ops[i]))
          << "operation " << i << " of rank " << rank;
    ASSERT_EQ(plan.ops.size(), real.ops.size());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, DryStep,
    testing::Values(Case{"gpt2", "tiny-gpt2", {}}, Case{"llama", "tiny-llama", {}},
                    Case{"bf16", "tiny-llama", {"precision.compute=bf16"}},
                    Case{"f16", "tiny-gpt2", {"precision.compute=f16"}},
                    Case{"dp", "tiny-llama", {"parallel.dp=2"}},
                    Case{"fsdp", "tiny-llama", {"parallel.fsdp=2"}},
                    Case{"fsdp_bf16", "tiny-gpt2", {"parallel.fsdp=2", "precision.compute=bf16"}},
                    Case{"tp", "tiny-llama", {"parallel.tp=2"}},
                    Case{"muon", "shakespeare-char-muon", {"parallel.dp=1"}},
                    Case{"muon_fsdp", "shakespeare-char-muon", {"parallel.fsdp=2", "parallel.dp=2"}},
                    Case{"eight_bit_tp", "tiny-llama", {"optimizer.kind=adamw8bit", "parallel.tp=2"}},
                    Case{"adafactor", "tiny-llama", {"optimizer.kind=adafactor", "parallel.fsdp=2"}},
                    Case{"fp8",
                         "tiny-llama",
                         {"precision.compute=bf16", "precision.fp8=tensorwise", "head.precision=fp8"}},
                    Case{"fp8_delayed", "tiny-llama", {"precision.compute=bf16", "precision.fp8=delayed"}},
                    Case{"recompute", "tiny-llama", {"activations.policy=block", "head.kind=recompute"}},
                    Case{"mesh", "tiny-llama", {"parallel.dp=2", "parallel.fsdp=2", "parallel.tp=2"}}),
    [](const auto& info) { return std::string(info.param.name); });

RunConfig fp8_config(const char* recipe, std::vector<std::string> keys) {
  keys.insert(keys.end(), {"train.device=cuda", "precision.compute=bf16", recipe});
  return config_of({"", "tiny-llama", keys});
}

// The bytes of the casts to FP8 in a planned step on a device.
double bytes_of_casts(const RunConfig& config) {
  const StepRecord plan = record_step(config, mesh_shape(config.parallel), 0);
  double bytes = 0;
  for (const RecordedOp& op : plan.ops)
    if (op.key >= 0 && plan.keys[static_cast<size_t>(op.key)].name == "fp8 cast")
      bytes += plan.keys[static_cast<size_t>(op.key)].bytes;
  return bytes;
}

// A cast reads 2 bytes of an element and writes 2. Current scaling reads a tensor once more for its amax,
// unless another kernel has it in hand: weights, attention's output, and, of the gradient of q, k and v, what
// neither a rotation nor the sums for a bias read.
TEST(DryStepOnADevice, OnlyCurrentScalesNeedPassesForAmaxes) {
  struct Form {
    std::vector<std::string> keys;
    bool measures_qk, measures_v;
  };
  for (const Form& form : {Form{{}, false, true}, Form{{"model.qkv_bias=true"}, false, false},
                           Form{{"model.qk_norm=true"}, true, true}}) {
    const RunConfig delayed = fp8_config("precision.fp8=delayed", form.keys);
    const ModelConfig m = delayed.model.resolved();
    const auto C = static_cast<double>(m.width), F = static_cast<double>(m.mlp_in_width() + m.ffn),
               Q = static_cast<double>(m.qkv_width()), H = static_cast<double>(m.heads * m.head_dim),
               V = static_cast<double>(m.kv_heads * m.head_dim);
    const double weights = C * (Q + H + F);
    const double of_token = H + (form.measures_qk ? Q - V : 0) + (form.measures_v ? V : 0);
    const double bytes = bytes_of_casts(delayed);
    EXPECT_GT(bytes, 0);
    EXPECT_DOUBLE_EQ(bytes_of_casts(fp8_config("precision.fp8=tensorwise", form.keys)),
                     bytes + 2 * 2 * (weights + 4 * 4 * 32 * of_token));
  }
}

}  // namespace
}  // namespace ingot
