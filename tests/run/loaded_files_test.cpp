// Only the files from which a model is loaded are verified, and all of those are. Its weights have the bits
// that rounding the f32 weights gives.
#include <gmock/gmock.h>

#include <cstring>

#include "ingot/checkpoint/checkpoint.h"
#include "ingot/ops/cast.h"
#include "ingot/ops/int8_matrix.h"
#include "tests/nn/small_model.h"
#include "tests/run/training_fixture.h"

namespace ingot {
namespace {

using testing::HasSubstr;

class LoadedFiles : public TrainingTest {
 protected:
  // Trains two steps and returns the run's folder, with checkpoints of both.
  std::filesystem::path trained_run(bool is_gpt2 = true) {
    RunConfig c = config(DType::bf16);
    if (is_gpt2) {
      c.model.kv_heads = 0;
      c.model = test::gpt2_style(c.model);
    }
    c.train.steps = 2;
    c.eval.every = 0;
    c.checkpoint.every = 1;
    c.checkpoint.keep = 5;
    c.optimizer.ema = 0.5;
    c.schedule.warmup_steps = 0;
    train(c, folder / "run");
    return folder / "run";
  }
  // Flips one bit in the middle of a file.
  static void damage(const std::filesystem::path& file) {
    std::string bytes = read_file(file);
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    write_file(file, bytes);
  }
  LoadedModel load(const std::filesystem::path& path, std::optional<DType> compute = {},
                   LoadedWeights weights = LoadedWeights::kTrained,
                   MatrixFormat format = MatrixFormat::kCompute) {
    return load_model(
        path, compute, weights,
        [this](const std::filesystem::path& where, const std::string& what) {
          reported += where.filename().string() + " " + what + "\n";
        },
        format);
  }
  std::string reported;  // damaged checkpoints that were passed over
};

TEST_F(LoadedFiles, ADamagedFileThatIsReadIsRefused) {
  const std::filesystem::path run = trained_run(), checkpoint = run / "checkpoints/step-000000002";
  for (const char* name :
       {"model.safetensors", "config.toml", "config.json", "tokenizer.json", "tokenizer_config.json"}) {
    damage(checkpoint / name);
    EXPECT_THAT([&] { load(checkpoint); }, testing::ThrowsMessage<Error>(testing::AllOf(
                                               HasSubstr(name), HasSubstr("its bytes have changed"))));
    reported.clear();
    load(run);
    EXPECT_THAT(reported, HasSubstr(std::string("step-000000002 ") + name)) << "the one before is taken";
    damage(checkpoint / name);  // the bit flips back
  }
  reported.clear();
  load(run);
  EXPECT_EQ(reported, "");
}

TEST_F(LoadedFiles, TheOptimizersStateMattersOnlyIfTheAveragesAreRead) {
  const std::filesystem::path run = trained_run(), checkpoint = run / "checkpoints/step-000000002";
  damage(checkpoint / "optimizer.safetensors");
  load(checkpoint);
  load(run);
  EXPECT_EQ(reported, "");
  EXPECT_THAT([&] { load(checkpoint, {}, LoadedWeights::kAveraged); },
              testing::ThrowsMessage<Error>(HasSubstr("optimizer.safetensors has hash")));
  load(run, {}, LoadedWeights::kAveraged);
  EXPECT_THAT(reported, HasSubstr("step-000000002 optimizer.safetensors"));
  std::filesystem::resize_file(checkpoint / "optimizer.safetensors", 8);
  EXPECT_THAT([&] { load(checkpoint); },
              testing::ThrowsMessage<Error>(HasSubstr("optimizer.safetensors has 8 bytes")));
}

TEST_F(LoadedFiles, WeightsOf16BitsAreTheRoundedOnes) {
  for (const bool is_gpt2 : {true, false}) {  // GPT-2's matrices are stored the other way round
    std::filesystem::remove_all(folder / "run");
    const std::filesystem::path run = trained_run(is_gpt2);
    for (const LoadedWeights weights : {LoadedWeights::kTrained, LoadedWeights::kAveraged})
      for (const DType dtype : {DType::bf16, DType::f16}) {
        const LoadedModel exact = load(run, DType::f32, weights), rounded = load(run, dtype, weights);
        Stream stream;
        for (int id = 0; id < static_cast<int>(exact.model->params().specs().size()); ++id) {
          const Tensor w = exact.params->weight(id), found = rounded.params->weight(id);
          std::vector<std::byte> bytes(found.bytes());
          cast(Tensor(bytes.data(), found.dtype, found.shape), w, stream);
          EXPECT_EQ(found.dtype, w.rank() == 1 ? DType::f32 : dtype);
          EXPECT_EQ(std::memcmp(bytes.data(), found.data, bytes.size()), 0) << exact.model->params()[id].name;
        }
        const auto bytes_of = [](const LoadedModel& model) {
          return dynamic_cast<ResidentStore&>(*model.params).params_arena().capacity_bytes();
        };
        EXPECT_LT(bytes_of(rounded), bytes_of(exact));
      }
  }
}

// The codes are made from the file's numbers, not from rounded ones.
TEST_F(LoadedFiles, Int8WeightsAreTheQuantisedOnes) {
  for (const bool is_gpt2 : {true, false}) {
    std::filesystem::remove_all(folder / "run");
    const std::filesystem::path run = trained_run(is_gpt2);
    for (const LoadedWeights weights : {LoadedWeights::kTrained, LoadedWeights::kAveraged}) {
      const LoadedModel exact = load(run, DType::f32, weights),
                        codes = load(run, DType::bf16, weights, MatrixFormat::kInt8);
      for (int id = 0; id < static_cast<int>(exact.model->params().specs().size()); ++id) {
        const Int8Matrix* found = codes.params->int8_weight(id);
        const Tensor w = exact.params->weight(id);
        EXPECT_EQ(found == nullptr, w.rank() == 1 || exact.model->params()[id].name == "positions.weight");
        if (!found) continue;
        Arena arena("int8", 2 * w.bytes());
        const Int8Matrix want = alloc_int8(arena, w.dim(0), w.dim(1));
        int8_quantize(want, w);
        EXPECT_EQ(std::memcmp(want.codes.data, found->codes.data, want.codes.bytes()), 0) << id;
        EXPECT_EQ(std::memcmp(want.scales.data, found->scales.data, want.scales.bytes()), 0) << id;
      }
    }
  }
}

}  // namespace
}  // namespace ingot
