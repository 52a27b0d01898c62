#include "ingot/train/generate.h"

#include <algorithm>
#include <utility>

namespace ingot {
namespace {

constexpr int64_t kPrefillTokens = 128;  // prompt tokens processed at once

size_t cache_bytes(const Transformer& model) {
  Arena arena("cache plan");
  model.make_caches(arena, model.config().context);
  return arena.peak_bytes();
}

size_t inference_bytes(const Transformer& model) {
  const int64_t context = model.config().context;
  return model.infer_scratch_bytes(std::min(kPrefillTokens, context), context);
}

}  // namespace

size_t Generator::planned_bytes(const Transformer& model) {
  return cache_bytes(model) + inference_bytes(model) +
         static_cast<size_t>(2 * model.config().vocab_padded()) * sizeof(float);
}

Generator::Generator(const Transformer& model, ParamStore& params, Region& region, Infer infer)
    : model_(model),
      params_(params),
      region_(region),
      infer_(infer ? std::move(infer)
                   : [&model](LayerContext& ctx, const Tensor& tokens, std::vector<KvCache>& caches,
                              const Tensor& logits) { model.infer(ctx, tokens, caches, logits); }),
      caches_arena_("key-value cache", cache_bytes(model)),
      scratch_("inference", inference_bytes(model)),
      caches_(model.make_caches(caches_arena_, model.config().context)),
      logits_(static_cast<size_t>(model.config().vocab_padded())),
      sample_scratch_(static_cast<size_t>(model.config().vocab)) {}

void Generator::reset() {
  sequence_.clear();
  for (KvCache& cache : caches_) cache.length = 0;
}

void Generator::append(std::span<const int32_t> tokens) {
  LayerContext ctx{
      .params = params_, .region = region_, .scratch = scratch_, .stream = stream_, .dropout = {}};
  const Tensor logits(logits_.data(), DType::f32, {std::ssize(logits_)});
  const int64_t limit = std::min(kPrefillTokens, model_.config().context);
  while (!tokens.empty()) {
    const auto chunk = tokens.first(std::min<size_t>(tokens.size(), static_cast<size_t>(limit)));
    const Tensor ids(const_cast<int32_t*>(chunk.data()), DType::i32, {std::ssize(chunk)});
    infer_(ctx, ids, caches_, logits);
    tokens = tokens.subspan(chunk.size());
  }
}

// Reads the last half of the context again from position 0.
void Generator::make_room() {
  for (KvCache& cache : caches_) cache.length = 0;
  const size_t keep = static_cast<size_t>(std::max<int64_t>(1, model_.config().context / 2));
  append(std::span(sequence_).last(std::min(keep, sequence_.size())));
}

void Generator::run(std::span<const TokenId> prompt, int64_t tokens, const SampleConfig& config,
                    uint64_t seed, std::optional<TokenId> stop, const std::function<bool(TokenId)>& sink) {
  INGOT_CHECK(!prompt.empty(), "Generator::run: the prompt must have at least one token");
  config.validate();
  const int64_t context = model_.config().context;
  const int64_t vocab = std::min(model_.config().vocab, most_ids_);
  for (TokenId id : prompt)
    if (id >= vocab)
      fail(ErrorKind::kData,
           "the prompt has token {}, the vocabulary ends at {}; use the tokenizer it was "
           "trained with",
           id, vocab - 1);
  sequence_.insert(sequence_.end(), prompt.begin(), prompt.end());
  const size_t kept = std::min<size_t>(sequence_.size(), static_cast<size_t>(context));
  for (KvCache& cache : caches_) cache.length = 0;
  append(std::span(sequence_).last(kept));
  const Tensor logits(logits_.data(), DType::f32, {std::ssize(logits_)});
  const Tensor scratch(sample_scratch_.data(), DType::i32, {vocab});
  const RandomKey key{.seed = seed, .purpose = Purpose::kSample, .stream = 0, .step = 0};
  for (int64_t i = 0; i < tokens; ++i) {
    RandomKey own = key;
    own.step = sequence_.size();
    const int32_t next = sample_token(logits, vocab, config, own, scratch);
    if (stop && static_cast<TokenId>(next) == *stop) return;
    if (!sink(static_cast<TokenId>(next))) return;
    sequence_.push_back(next);
    if (i + 1 == tokens) return;
    if (caches_.front().length == context)
      make_room();
    else
      append(std::span(sequence_).last(1));
  }
}

void generate_text(Generator& generator, const Tokenizer& tokenizer, std::string_view prompt, int64_t tokens,
                   const SampleConfig& config, uint64_t seed,
                   const std::function<void(std::string_view)>& write) {
  std::vector<TokenId> ids = encode(tokenizer, prompt);
  const std::optional<TokenId> end = tokenizer.end_of_text();
  if (ids.empty()) ids = end ? std::vector<TokenId>{*end} : encode(tokenizer, "\n");
  Utf8Stream utf8;
  write(prompt);
  generator.reset();
  generator.limit_ids(tokenizer.vocab_size());
  generator.run(ids, tokens, config, seed, end, [&](TokenId id) {
    std::string bytes;
    tokenizer.append_bytes(id, bytes);
    const std::string text = utf8.push(bytes);
    if (!text.empty()) write(text);
    return true;
  });
  const std::string rest = utf8.flush();
  if (!rest.empty()) write(rest);
}

}  // namespace ingot
