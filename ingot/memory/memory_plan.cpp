#include "ingot/memory/memory_plan.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>
#include <system_error>

#include "ingot/console/console.h"
#include "ingot/data/builtin_corpus.h"
#include "ingot/data/corpus.h"
#include "ingot/data/corpus_reader.h"
#include "ingot/data/loader.h"
#include "ingot/data/token_source_shards.h"
#include "ingot/data/tokenizer/tokenizer.h"
#include "ingot/formats/compressed.h"
#include "ingot/formats/shard.h"
#include "ingot/infer/generate.h"
#include "ingot/parallel/parallelize.h"
#include "ingot/train/trainer.h"

namespace ingot {
namespace fs = std::filesystem;
namespace {

// Pages of the program and its libraries, stacks, and what they allocate at first use. Measured: 30 to 70
// MB more than the rest of a plan.
constexpr uint64_t kProgramBytes = 60 << 20;
// On a device: workspaces, modules and buffers of CUDA's libraries, which they take at first use. An
// estimate.
constexpr uint64_t kLibraryBytes = 512 << 20;
// In a pipeline: all their kernels, which are loaded before the first step (apps/ranks.cpp). An estimate.
constexpr uint64_t kAllKernelBytes = uint64_t{1} << 30;
constexpr int64_t kMultiprocessors = 132;         // a Hopper GPU has at most this many
constexpr uint64_t kBuiltinTextBytes = 12 << 20;  // upper bound for every built-in corpus
constexpr int64_t kCharVocab = 256;
constexpr double kBytesPerBpeToken = 3;  // lower bound; English has about 4

uint64_t unsigned_of(int64_t n) { return static_cast<uint64_t>(std::max<int64_t>(0, n)); }

struct TextSizes {
  uint64_t text = 0;     // bytes in total, mapped or read
  uint64_t read = 0;     // bytes that are in memory at one time
  uint64_t longest = 0;  // bytes of the longest document that is tokenized at once
};

constexpr uint64_t kLinesReadBytes = 4 * kBatchBytes;  // a batch of lines, its documents, and the next one

void add_file(const fs::path& file, TextSizes& sizes) {
  std::error_code error;
  const uintmax_t bytes = fs::file_size(file, error);
  if (error) return;
  constexpr uint64_t kUnpacked = 4;  // bytes of text per compressed byte, roughly
  const fs::path name = name_inside(file);
  const uint64_t text = has_compressed_name(file) ? kUnpacked * bytes : bytes;
  sizes.text += text;
  if (name.extension() == ".jsonl" || name.extension() == ".ndjson")
    sizes.read = std::max<uint64_t>(sizes.read, std::min(text, kLinesReadBytes));
  else
    sizes.longest = std::max<uint64_t>(sizes.longest, text);
}

void add_specs(const std::vector<std::string>& specs, TextSizes& sizes) {
  for (const std::string& spec : specs) {
    if (spec.starts_with("builtin:")) {
      sizes.text += kBuiltinTextBytes;
      sizes.read += kBuiltinTextBytes;
      continue;
    }
    try {
      for (const fs::path& file : expand_paths(std::span(&spec, 1))) add_file(file, sizes);
    } catch (const Error&) {  // the error is reported when the data is read
    }
  }
}

bool is_shards(const std::vector<std::string>& specs) {
  try {
    return names_shards(specs);
  } catch (const Error&) {
    return false;
  }
}

void plan_data(const RunConfig& config, MemoryPlan& plan) {
  const DataConfig& data = config.data;
  if (is_shards(data.train)) return;  // shards are mapped, and the kernel may drop their pages
  std::vector<std::string> texts = data.train;
  if (!data.mix.empty()) std::erase_if(texts, [](const std::string& spec) { return is_shards({spec}); });
  TextSizes sizes, val;
  add_specs(texts, sizes);
  add_specs(data.val, sizes);
  add_specs(data.val, val);
  const auto val_bytes = data.val.empty()
                             ? static_cast<uint64_t>(data.val_fraction * static_cast<double>(sizes.text))
                             : val.text;
  const double text_per_token = data.tokenizer == "byte" || data.tokenizer == "char" ? 1 : kBytesPerBpeToken;
  const uint64_t token_bytes = size_bytes(shard_dtype(config.model.vocab));
  const auto tokens_in = [&](uint64_t bytes) {
    return static_cast<uint64_t>(static_cast<double>(bytes) / text_per_token);
  };
  if (val_bytes > 0 && val_bytes <= static_cast<uint64_t>(kYardstickBytes))
    plan.items.push_back({.name = "validation text", .bytes = val_bytes});
  plan.items.push_back({.name = "tokens", .bytes = tokens_in(sizes.text) * token_bytes});
  // A document's ids are u32 in a growing vector before they are stored in the dtype of the vocabulary.
  constexpr uint64_t kGrowing = 2 * sizeof(uint32_t);
  plan.loading_bytes =
      kProgramBytes + sizes.read + tokens_in(sizes.text) * token_bytes + tokens_in(sizes.longest) * kGrowing;
}

// Returns the size of the largest message that ranks buffer in addition to its tensors
// (comm/mpi_communicator.cpp).
uint64_t message_bytes(const RunConfig& config, const ParamList& params) {
  const ParallelConfig& parallel = config.parallel;
  int64_t unit = 0;
  for (int u = 0; u < params.units(); ++u)
    unit = std::max({unit, params.unit_elements(u), params.frozen_elements(u)});
  const uint64_t unit_bytes = unsigned_of(unit) * sizeof(float);
  if (parallel.fsdp > 1) return unit_bytes;
  if (parallel.dp > 1) return std::max(unit_bytes, unsigned_of(parallel.bucket_mb) << 20);
  return 0;
}

uint64_t batch_bytes(const BatchShape& shape) {
  const uint64_t tensors = shape.document_mask ? 3 : 2;
  return unsigned_of(shape.batch * shape.context) * sizeof(int32_t) * tensors;
}

// Returns the size of this rank's copy of the weights and the optimizer state, from which a checkpoint is
// written while training continues. Replicas of a shard divide the copy among themselves
// (checkpoint/saved_state.h).
uint64_t state_copy_bytes(const Trainer& trainer) {
  TrainingStore& params = *trainer.layout().params;
  double bytes = 0;
  const auto add = [&](const Tensor& t, int64_t elements, const Replicas& holders) {
    if (t && holders.count > 0)
      bytes += static_cast<double>(elements) * static_cast<double>(size_bytes(t.dtype)) /
               static_cast<double>(holders.count);
  };
  for (const ParamShard& shard : params.shards()) {
    const int64_t n = shard.elements() - params.list()[shard.id].copies(shard.begin, shard.end);
    add(shard.w, n, params.replicas(shard.id));
    add(shard.tail, n, params.replicas(shard.id));
  }
  for (const Optimizer::State& state : trainer.state().optimizer.states()) {
    const Replicas holders = params.replicas(state.param);
    const bool is_held_alone = state.scope == Optimizer::ReplicaScope::kNone;
    add(state.tensor, trainer.state().optimizer.saved_elements(state),
        is_held_alone && holders.count > 0 ? Replicas{1, 0} : holders);
  }
  return static_cast<uint64_t>(bytes);
}

// The larger of what a device holds only while the peak of products is measured, and while kernels of a
// weight gradient are timed: a copy of it, and another one for products that may sum a bias's gradient.
uint64_t timing_bytes(DType compute, const ParamList& params) {
  constexpr int64_t kRows = kPeakRows * kMultiprocessors;
  uint64_t most = unsigned_of(2 * kRows * kRows) * size_bytes(compute);
  for (const ParamSpec& spec : params.specs())
    most = std::max(most,
                    unsigned_of(spec.elements()) * sizeof(float) * (spec.role == ParamRole::kMatrix ? 2 : 1));
  return most;
}

// Adds what is not in the trainer's arenas.
void plan_rest(const RunConfig& config, const Trainer& trainer, MemoryPlan& plan) {
  const auto add = [&](const std::string& name, uint64_t bytes) {
    if (bytes > 0) plan.items.push_back({.name = name, .bytes = bytes});
  };
  const Transformer& model = *trainer.layout().model;
  const LoaderConfig loader{.shape = trainer.layout().batch_shape,
                            .workers = config.data.workers,
                            .prefetch = config.data.prefetch};
  add("batches read ahead",
      unsigned_of(loader.ring() + 1) * batch_bytes(loader.shape));  // one more for evaluation
  const Device device = config.train.device;
  const auto add_inference = [&](const std::string& name, const InferBytes& bytes) {
    add(bytes.device > 0 ? name + " on the host" : name, bytes.host);
    if (bytes.device > 0)
      plan.items.push_back({.name = name, .bytes = bytes.device, .memory = Memory::kDevice});
  };
  if (config.sample.count > 0)
    add_inference("samples", Generator::planned_bytes(model, {.slots = config.sample.slots()}, device));
  if (!config.eval.tasks.empty()) {
    // The questions are not read yet; they take at most the whole context.
    const InferShape shape = scoring_shape(EvalConfig::kTaskSlots, model.config().context, device);
    add_inference("tasks", InferEngine::planned_bytes(model, shape, device));
  }
  uint64_t largest = 0;
  for (const ParamSpec& spec : model.params().specs())
    largest = std::max(largest, unsigned_of(spec.elements()) * sizeof(float));
  if (config.train.device == Device::kCuda)
    plan.items.push_back({.name = "libraries and timing",
                          .bytes = kLibraryBytes + (config.parallel.pp > 1 ? kAllKernelBytes : 0) +
                                   timing_bytes(config.precision.compute, model.params()),
                          .memory = Memory::kDevice});
  const bool is_staged = config.train.device == Device::kCuda || config.parallel.ranks() > 1;
  const bool is_expanded = trainer.layout().params->masters() != Masters::kF32;
  if (config.checkpoint.copies_state())
    add(kCheckpointCopy, state_copy_bytes(trainer) + (is_expanded ? largest : 0));
  else
    add(kCheckpointCopy, is_staged || is_expanded ? largest : 0);
  add("messages between ranks", message_bytes(config, model.params()));
  add("program", kProgramBytes);
}

}  // namespace

uint64_t MemoryPlan::host_bytes() const {
  uint64_t sum = 0;
  for (const MemoryItem& item : items) sum += item.memory == Memory::kDevice ? 0 : item.bytes;
  return std::max(sum, loading_bytes);
}

uint64_t MemoryPlan::device_bytes() const {
  uint64_t sum = 0;
  for (const MemoryItem& item : items) sum += item.memory == Memory::kDevice ? item.bytes : 0;
  return sum;
}

std::string MemoryPlan::largest(size_t count) const {
  std::vector<const MemoryItem*> sorted;
  for (const MemoryItem& item : items) sorted.push_back(&item);
  std::ranges::stable_sort(sorted, std::greater<>(), &MemoryItem::bytes);
  sorted.resize(std::min(count, sorted.size()));
  std::string text;
  for (const MemoryItem* item : sorted)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", item->name,
                        format_bytes(static_cast<double>(item->bytes)));
  return text;
}

int64_t planned_vocab(const DataConfig& data) {
  if (data.tokenizer == "byte") return make_byte_tokenizer()->vocab_size();
  if (data.tokenizer == "char") return kCharVocab;
  if (data.tokenizer == "bpe") return data.tokenizer_vocab;
  try {
    return load_tokenizer(data.tokenizer)->vocab_size();
  } catch (const Error&) {  // the error is reported when the data is read
    return data.tokenizer_vocab;
  }
}

MemoryPlan plan_memory(const RunConfig& given, const MeshShape& shape, int rank,
                       const Mesh::MakeGroup& make_group) {
  RunConfig config = given;
  if (config.model.vocab == 0) config.model.vocab = planned_vocab(config.data);
  Mesh mesh = Mesh::planned(shape, rank, make_group);
  const Trainer trainer(config, parallelize(config, mesh, Backing::kAddresses));
  MemoryPlan plan;
  for (const Trainer::ArenaUse& use : trainer.arenas())
    plan.items.push_back({.name = use.name, .bytes = use.bytes, .memory = use.memory});
  plan_data(config, plan);
  plan_rest(config, trainer, plan);
  return plan;
}

}  // namespace ingot
