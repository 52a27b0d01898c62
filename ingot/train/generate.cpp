#include "ingot/train/generate.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "ingot/core/copy.h"
#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/cuda/cuda_graph.h"
#include "ingot/core/parallel.h"

namespace ingot {
namespace {

// Returns how many tokens the model reads at once. A device needs more of them to be busy.
int64_t most_tokens(const Transformer& model, int64_t slots, Device device) {
  const int64_t prefill = device == Device::kCuda ? 1024 : 128;
  return std::max(slots, std::min(prefill, model.config().context));
}

int64_t padded_on(Device device, int64_t n) {
  return device == Device::kCuda ? static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n))) : n;
}

int64_t most_rows(const Transformer& model, int64_t slots, Device device) {
  return padded_on(device, most_tokens(model, slots, device));
}

CacheShape cache_shape(const Transformer& model, int64_t slots) {
  return {.slots = slots, .positions = model.config().context};
}

}  // namespace

// The arenas, without memory.
Generator::Arenas Generator::plan(const Transformer& model, int64_t slots, Device device) {
  const bool is_host = device == Device::kCpu;
  Arenas arenas{.caches = Arena("key-value cache", memory_of(device)),
                .scratch = Arena("inference", memory_of(device)),
                .host = Arena("logits", is_host ? Memory::kHost : Memory::kPinned),
                .there = Arena("logits of the device", memory_of(device))};
  model.make_caches(arenas.caches, slots, model.config().context);
  lay_out(arenas.host, model, slots, device);
  if (!is_host) lay_out(arenas.there, model, slots, device);
  return arenas;
}

Generator::Buffers Generator::lay_out(Arena& arena, const Transformer& model, int64_t slots, Device device) {
  return {.ids = arena.alloc(DType::i32, InferBatch::ids_shape(most_rows(model, slots, device))),
          .logits = arena.alloc(DType::f32, {padded_on(device, slots), model.config().vocab_padded()})};
}

size_t Generator::scratch_bytes(const Transformer& model, int64_t slots, Device device) {
  return model.infer_scratch_bytes(most_rows(model, slots, device), cache_shape(model, slots), device);
}

Generator::Bytes Generator::planned_bytes(const Transformer& model, int64_t slots, Device device) {
  const Arenas arenas = plan(model, slots, device);
  const size_t by_stream = arenas.caches.peak_bytes() + scratch_bytes(model, slots, device);
  const size_t own =
      arenas.host.peak_bytes() + static_cast<size_t>(slots * model.config().vocab) * sizeof(int32_t);
  if (device == Device::kCpu) return {.host = by_stream + own, .device = 0};
  return {.host = own, .device = by_stream + arenas.there.peak_bytes()};
}

Generator::Generator(const Transformer& model, ParamStore& params, Region& region, Stream& stream,
                     int64_t slots, Infer infer)
    : model_(model),
      params_(params),
      region_(region),
      stream_(stream),
      slots_(slots),
      has_graphs_(!infer && stream.device == Device::kCuda),
      infer_(infer ? std::move(infer)
                   : [&model](LayerContext& ctx, const InferBatch& batch, const std::vector<KvCache>& caches,
                              const Tensor& logits) { model.infer(ctx, batch, caches, logits); }),
      arenas_([&] {
        const Arenas planned = plan(model, slots, stream.device);
        const auto arena = [](const Arena& from, size_t size_bytes) {
          return Arena(from.name(), size_bytes, from.memory());
        };
        return Arenas{.caches = arena(planned.caches, planned.caches.peak_bytes()),
                      .scratch = arena(planned.scratch, scratch_bytes(model, slots, stream.device)),
                      .host = arena(planned.host, planned.host.peak_bytes()),
                      .there = arena(planned.there, planned.there.peak_bytes())};
      }()),
      caches_(model.make_caches(arenas_.caches, slots, model.config().context)),
      host_(lay_out(arenas_.host, model, slots, stream.device)),
      sample_scratch_(static_cast<size_t>(slots * model.config().vocab)) {
  if (stream.device == Device::kCuda) there_ = lay_out(arenas_.there, model, slots, stream.device);
}

// Computes the logits of a batch whose ids are the host's; on a device the logits are copied back.
void Generator::infer(const InferBatch& batch) {
  LayerContext ctx{
      .params = params_, .region = region_, .scratch = arenas_.scratch, .stream = stream_, .dropout = {}};
  const int64_t outputs = batch.output_rows();
  if (stream_.device == Device::kCpu) {
    infer_(ctx, batch, caches_, host_.logits.rows(0, outputs));
    return;
  }
  copy(there_.ids, host_.ids, stream_);
  infer_on_device(ctx, batch.with_ids(there_.ids), there_.logits.rows(0, outputs));
  const int64_t wanted = batch.outputs_count();
  if (wanted > 0) copy(host_.logits.rows(0, wanted), there_.logits.rows(0, wanted), stream_);
  synchronize(stream_);
}

// A pass of single tokens that all want logits repeats that of the last ones with other contents of the same
// memory, until longest_single() changes.
void Generator::infer_on_device(LayerContext& ctx, const InferBatch& batch, const Tensor& logits) {
  if constexpr (kHasCuda) {
    const bool has_graph =
        has_graphs_ && batch.is_all_singles() && batch.outputs_count() == batch.tokens_count();
    if (has_graph && !graphs_.try_emplace(batch.rows()).second) {
      Captured& captured = graphs_[batch.rows()];
      const auto pass = [&] { infer_(ctx, batch, caches_, logits); };
      if (!captured.graph)
        captured.graph = std::make_shared<cuda::Graph>(stream_, pass);
      else if (captured.longest != batch.longest_single())
        captured.graph->replace(stream_, pass);
      captured.longest = batch.longest_single();
      return captured.graph->launch(stream_);
    }
  }
  infer_(ctx, batch, caches_, logits);
}

void Generator::make_room(Sequence& sequence) const {
  const auto half = static_cast<size_t>(std::max<int64_t>(1, model_.config().context / 2));
  sequence.read = sequence.tokens.size() - std::min(half, sequence.tokens.size());
  sequence.cached = 0;
}

std::vector<Generator::Sequence*> Generator::advance() {
  const int64_t context = model_.config().context;
  int64_t left = most_tokens(model_, slots_, stream_.device);
  struct Taken {
    Sequence* sequence;
    int64_t count;
  };
  std::vector<Taken> taken;
  for (Sequence& sequence : sequences_)
    if (sequence.cached == context) make_room(sequence);
  for (const bool is_single : {true, false})  // every sequence that waits for one token advances
    for (Sequence& sequence : sequences_) {
      if ((sequence.pending() == 1) != is_single || left == 0) continue;
      taken.push_back({&sequence, std::min(sequence.pending(), left)});
      left -= taken.back().count;
    }
  std::stable_partition(taken.begin(), taken.end(), [](const Taken& t) { return t.count == 1; });
  std::vector<InferSegment> segments;
  std::vector<int32_t> tokens;
  std::vector<Sequence*> outputs;
  for (const auto& [sequence, count] : taken) {
    const bool is_last = count == sequence->pending();
    segments.push_back(
        {.slot = sequence->slot, .first = sequence->cached, .count = count, .logits = is_last ? 1 : 0});
    const auto first = sequence->tokens.begin() + static_cast<ptrdiff_t>(sequence->read);
    tokens.insert(tokens.end(), first, first + static_cast<ptrdiff_t>(count));
    if (is_last) outputs.push_back(sequence);
  }
  infer(InferBatch(host_.ids, std::move(segments), tokens, context, stream_.device == Device::kCuda));
  for (const auto& [sequence, count] : taken) {
    sequence->read += static_cast<size_t>(count);
    sequence->cached += count;
    tokens_read_ += count;
    keep(*sequence);
  }
  return outputs;
}

void Generator::check_prompts(std::span<const Prompt> prompts) const {
  const int64_t vocab = std::min(model_.config().vocab, most_ids_);
  for (const Prompt& prompt : prompts) {
    INGOT_CHECK(!prompt.tokens.empty(), "Generator::run: the prompt must have at least one token");
    for (TokenId id : prompt.tokens)
      if (id >= vocab)
        fail(ErrorKind::kData,
             "the prompt has token {}, the vocabulary ends at {}; use the tokenizer it was "
             "trained with",
             id, vocab - 1);
  }
}

// Starts the sequence of a prompt in a free slot. It reads the last `context` tokens of the prompt.
void Generator::start(const Prompt& prompt, size_t index, int64_t tokens) {
  Sequence sequence{.prompt = index,
                    .key = {.seed = prompt.seed, .purpose = Purpose::kSample, .stream = 0, .step = 0},
                    .tokens = {prompt.tokens.begin(), prompt.tokens.end()},
                    .wanted = tokens};
  const size_t context = static_cast<size_t>(model_.config().context);
  sequence.read = sequence.tokens.size() - std::min(sequence.tokens.size(), context);
  take_slot(sequence);
  sequences_.push_back(std::move(sequence));
}

void Generator::take_slot(Sequence& sequence) {
  const std::span<const int32_t> wanted = std::span(sequence.tokens).subspan(sequence.read);
  int64_t most = -1, least_kept = 0;
  for (int64_t slot = 0; slot < slots_; ++slot) {
    if (std::ranges::any_of(sequences_, [&](const Sequence& other) { return other.slot == slot; })) continue;
    const std::span<const int32_t> kept =
        kept_.empty() ? std::span<const int32_t>() : kept_[static_cast<size_t>(slot)];
    int64_t common = std::ranges::mismatch(kept, wanted).in1 - kept.begin();
    common = std::min(common, std::ssize(wanted) - 1);  // the last token's logits are wanted
    if (common < most || (common == most && std::ssize(kept) >= least_kept)) continue;
    most = common;
    least_kept = std::ssize(kept);
    sequence.slot = slot;
  }
  sequence.read += static_cast<size_t>(most);
  sequence.cached = most;
}

void Generator::keep(const Sequence& sequence) {
  if (kept_.empty()) return;
  const auto end = sequence.tokens.begin() + static_cast<ptrdiff_t>(sequence.read);
  kept_[static_cast<size_t>(sequence.slot)].assign(end - sequence.cached, end);
}

int32_t Generator::draw(size_t row, const Sequence& sequence, const SampleConfig& config) {
  const int64_t vocab = std::min(model_.config().vocab, most_ids_), i = static_cast<int64_t>(row);
  const Tensor logits = host_.logits.rows(i, i + 1).reshape({host_.logits.dim(1)});
  model_.cap_logits({logits.as<float>(), static_cast<size_t>(vocab)});
  const Tensor scratch(sample_scratch_.data() + i * model_.config().vocab, DType::i32, {vocab});
  RandomKey key = sequence.key;
  key.step = sequence.tokens.size();
  return sample_token(logits, vocab, config, key, scratch);
}

void Generator::run(std::span<const Prompt> prompts, int64_t tokens, const SampleConfig& config,
                    std::span<const TokenId> stops, const Sink& sink,
                    const std::function<void(size_t)>& ended) {
  check_prompts(prompts);
  config.validate();
  INGOT_CHECK(tokens > 0, "Generator::run: {} tokens to sample", tokens);
  sequences_.clear();
  for (size_t next = 0; next < prompts.size() || !sequences_.empty();) {
    for (; next < prompts.size() && std::ssize(sequences_) < slots_; ++next)
      start(prompts[next], next, tokens);
    const std::vector<Sequence*> outputs = advance();
    std::vector<int32_t> drawn(outputs.size());
    parallel_for(std::ssize(outputs), 1, [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
        drawn[i] = draw(i, *outputs[i], config);
    });
    for (size_t i = 0; i < outputs.size(); ++i) {
      Sequence& sequence = *outputs[i];
      const auto id = static_cast<TokenId>(drawn[i]);
      const bool goes_on = std::ranges::find(stops, id) == stops.end() && sink(sequence.prompt, id);
      sequence.tokens.push_back(drawn[i]);
      sequence.wanted = goes_on ? sequence.wanted - 1 : 0;
      if (sequence.wanted == 0 && ended) ended(sequence.prompt);
    }
    std::erase_if(sequences_, [](const Sequence& sequence) { return sequence.wanted == 0; });
  }
}

namespace {

// Returns the tokens that an empty prompt stands for.
std::vector<TokenId> default_prompt(const Tokenizer& tokenizer) {
  if (const std::optional<TokenId> end = tokenizer.end_of_text()) return {*end};
  try {
    if (std::vector<TokenId> newline = encode(tokenizer, "\n"); !newline.empty()) return newline;
  } catch (const Error&) {
    // a vocabulary of characters without a newline
  }
  std::string bytes;
  for (TokenId id = 0;; ++id) try {
      tokenizer.append_bytes(id, bytes);
      return {id};
    } catch (const Error&) {
      if (id + 1 >= tokenizer.vocab_size()) throw;
    }
}

}  // namespace

void generate_texts(Generator& generator, const Tokenizer& tokenizer, const TextRequest& request,
                    const TextSink& write) {
  const std::optional<TokenId> end = tokenizer.end_of_text();
  std::vector<Generator::Prompt> prompts;
  for (const std::string& text : request.prompts) {
    Generator::Prompt prompt{.tokens = encode(tokenizer, text), .seed = request.seed + prompts.size()};
    if (prompt.tokens.empty()) prompt.tokens = default_prompt(tokenizer);
    prompts.push_back(std::move(prompt));
  }
  for (size_t i = 0; i < prompts.size(); ++i) write(i, request.prompts[i], false);
  std::vector<Utf8Stream> utf8(prompts.size());
  generator.limit_ids(tokenizer.vocab_size());
  const auto sink = [&](size_t i, TokenId id) {
    std::string bytes;
    tokenizer.append_bytes(id, bytes);
    const std::string text = utf8[i].push(bytes);
    if (!text.empty()) write(i, text, false);
    return true;
  };
  std::vector<TokenId> stops = tokenizer.eos_ids();
  if (end) stops.push_back(*end);
  generator.run(prompts, request.tokens, request.sample, stops, sink,
                [&](size_t i) { write(i, utf8[i].flush(), true); });
}

void generate_text(Generator& generator, const Tokenizer& tokenizer, std::string_view prompt, int64_t tokens,
                   const SampleConfig& config, uint64_t seed,
                   const std::function<void(std::string_view)>& write) {
  const TextRequest request{
      .prompts = {std::string(prompt)}, .tokens = tokens, .sample = config, .seed = seed};
  generate_texts(generator, tokenizer, request, [&](size_t, std::string_view piece, bool) {
    if (!piece.empty()) write(piece);
  });
}

}  // namespace ingot
