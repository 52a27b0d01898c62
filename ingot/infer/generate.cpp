#include "ingot/infer/generate.h"

#include <algorithm>
#include <utility>

#include "ingot/core/parallel.h"
#include "ingot/infer/prompt.h"

namespace ingot {
namespace {

InferShape shape_of(const Transformer& model, const GeneratorShape& shape, Device device) {
  const int64_t context = model.config().context,
                tokens = std::max(shape.slots, std::min(usual_tokens(device), context));
  return {.slots = shape.slots,
          .positions = context,
          .tokens = tokens,
          .logits = shape.has_scores ? tokens : shape.slots,
          .has_graphs = true};
}

}  // namespace

InferBytes Generator::planned_bytes(const Transformer& model, GeneratorShape shape, Device device) {
  InferBytes bytes = InferEngine::planned_bytes(model, shape_of(model, shape, device), device);
  bytes.host += static_cast<size_t>(shape.slots * model.config().vocab) * sizeof(int32_t);
  return bytes;
}

Generator::Generator(const Transformer& model, ParamStore& params, Region& region, Stream& stream,
                     GeneratorShape shape, Transformer::Infer infer)
    : engine_(model, params, region, stream, shape_of(model, shape, stream.device), std::move(infer)),
      sample_scratch_(static_cast<size_t>(shape.slots * model.config().vocab)) {}

void Generator::make_room(Sequence& sequence) const {
  const auto half = static_cast<size_t>(std::max<int64_t>(1, engine_.shape().positions / 2));
  sequence.read = sequence.tokens.size() - std::min(half, sequence.tokens.size());
  sequence.cached = 0;
}

std::vector<Generator::Row> Generator::advance() {
  const int64_t context = engine_.shape().positions;
  int64_t left = engine_.shape().tokens;
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
  std::vector<Row> rows;
  for (const auto& [sequence, count] : taken) {
    const int64_t logits = sequence->logits_of(count);
    segments.push_back({.slot = sequence->slot, .first = sequence->cached, .count = count, .logits = logits});
    const auto first = sequence->tokens.begin() + static_cast<ptrdiff_t>(sequence->read);
    tokens.insert(tokens.end(), first, first + static_cast<ptrdiff_t>(count));
    const size_t end = sequence->read + static_cast<size_t>(count);
    for (size_t i = end - static_cast<size_t>(logits) + 1; i <= end; ++i)
      rows.push_back({sequence, i, i < sequence->tokens.size() ? sequence->tokens[i] : -1});
  }
  engine_.run(std::move(segments), tokens);
  for (const auto& [sequence, count] : taken) {
    sequence->read += static_cast<size_t>(count);
    sequence->cached += count;
    tokens_read_ += count;
    keep(*sequence);
  }
  return rows;
}

void Generator::check(const SequenceRequest& request) const {
  INGOT_CHECK(!request.tokens.empty(), "Generator: the prompt must have at least one token");
  request.sample.validate();
  const int64_t vocab = std::min(engine_.model().config().vocab, most_ids_);
  for (const TokenId id : request.tokens)
    if (id >= vocab)
      fail(ErrorKind::kData,
           "the prompt has token {}, the vocabulary ends at {}; use the tokenizer it was trained with", id,
           vocab - 1);
}

// The sequence reads the last `context` tokens of the prompt.
size_t Generator::start(const SequenceRequest& request) {
  Sequence sequence{.number = next_number_++,
                    .key = {.seed = request.seed, .purpose = Purpose::kSample, .stream = 0, .step = 0},
                    .sample = request.sample,
                    .tokens = {request.tokens.begin(), request.tokens.end()},
                    .prompt = request.tokens.size(),
                    .passed = request.has_scores ? 1 : request.tokens.size(),
                    .wanted = request.wanted};
  const size_t context = static_cast<size_t>(engine_.shape().positions);
  sequence.read = sequence.tokens.size() - std::min(sequence.tokens.size(), context);
  take_slot(sequence);
  sequences_.push_back(std::move(sequence));
  return sequences_.back().number;
}

void Generator::end(size_t sequence) {
  std::erase_if(sequences_, [&](const Sequence& one) { return one.number == sequence; });
}

void Generator::take_slot(Sequence& sequence) {
  const std::span<const int32_t> wanted = std::span(sequence.tokens).subspan(sequence.read);
  int64_t most = -1, least_kept = 0;
  for (int64_t slot = 0; slot < engine_.shape().slots; ++slot) {
    if (std::ranges::any_of(sequences_, [&](const Sequence& other) { return other.slot == slot; })) continue;
    const std::span<const int32_t> kept =
        kept_.empty() ? std::span<const int32_t>() : kept_[static_cast<size_t>(slot)];
    int64_t common = std::ranges::mismatch(kept, wanted).in1 - kept.begin();
    // The logits of the token before `passed` are wanted.
    common = std::min(common, static_cast<int64_t>(sequence.passed - 1 - sequence.read));
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

void Generator::draw(size_t i, Row& row) {
  const std::span<float> all = engine_.logits(static_cast<int64_t>(i));
  const int64_t vocab = std::min(std::ssize(all), most_ids_);
  engine_.model().cap_logits(all.first(static_cast<size_t>(vocab)));
  const Sequence& sequence = *row.sequence;
  if (row.token >= 0 || sequence.wanted == 0) return;
  // At most one row of each slot is drawn.
  const Tensor scratch(sample_scratch_.data() + sequence.slot * std::ssize(all), DType::i32, {vocab});
  RandomKey key = sequence.key;
  key.step = row.position;
  row.token =
      sample_token(Tensor(all.data(), DType::f32, {std::ssize(all)}), vocab, sequence.sample, key, scratch);
}

void Generator::step(const TokenSink& sink, const std::function<void(size_t)>& ended) {
  std::vector<Row> rows = advance();
  parallel_for(std::ssize(rows), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) draw(i, rows[i]);
  });
  for (size_t i = 0; i < rows.size(); ++i) {
    Sequence& sequence = *rows[i].sequence;
    if (rows[i].token < 0 || sequence.has_ended) continue;
    const std::span<const float> logits = engine_.logits(static_cast<int64_t>(i));
    const SequenceToken token{
        .sequence = sequence.number,
        .position = rows[i].position,
        .token = static_cast<TokenId>(rows[i].token),
        .logits = logits.first(std::min<size_t>(logits.size(), static_cast<size_t>(most_ids_)))};
    if (!sink(token)) sequence.has_ended = true;
    sequence.passed = token.position + 1;
    if (token.position < sequence.prompt) continue;
    sequence.tokens.push_back(rows[i].token);
    --sequence.wanted;
  }
  for (const Sequence& sequence : sequences_)
    if (sequence.is_over()) ended(sequence.number);
  std::erase_if(sequences_, [](const Sequence& sequence) { return sequence.is_over(); });
}

void Generator::run(std::span<const Prompt> prompts, int64_t tokens, const SampleConfig& config,
                    std::span<const TokenId> stops, const Sink& sink,
                    const std::function<void(size_t)>& ended) {
  INGOT_CHECK(tokens > 0, "Generator::run: {} tokens to sample", tokens);
  std::vector<SequenceRequest> requests;
  for (const Prompt& prompt : prompts) {
    requests.push_back({.tokens = prompt.tokens, .seed = prompt.seed, .wanted = tokens, .sample = config});
    check(requests.back());
  }
  sequences_.clear();
  const size_t first = next_number_;
  const auto pass_on = [&](const SequenceToken& t) {
    return std::ranges::find(stops, t.token) == stops.end() && sink(t.sequence - first, t.token);
  };
  const auto finish = [&](size_t sequence) {
    if (ended) ended(sequence - first);
  };
  for (size_t next = 0; next < requests.size() || !is_idle(); step(pass_on, finish))
    for (; next < requests.size() && !is_full(); ++next) start(requests[next]);
}

void generate_texts(Generator& generator, const Tokenizer& tokenizer, const TextRequest& request,
                    const TextSink& write) {
  std::vector<Generator::Prompt> prompts;
  for (const std::string& text : request.prompts) {
    Generator::Prompt prompt{.tokens = {}, .seed = request.seed + prompts.size()};
    prompt.tokens = request.finds_special ? encode_with_special(tokenizer, text) : encode(tokenizer, text);
    if (prompt.tokens.empty()) prompt.tokens = empty_prompt(tokenizer);
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
  generator.run(prompts, request.tokens, request.sample, text_ends(tokenizer), sink,
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
