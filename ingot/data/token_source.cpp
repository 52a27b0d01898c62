#include "ingot/data/token_source.h"

#include <xxhash.h>

#include <algorithm>
#include <memory>

#include "ingot/core/error.h"
#include "ingot/core/ignore_index.h"

namespace ingot {
namespace {
constexpr int64_t kHashChunkTokens = 65536;
constexpr int64_t kReleaseTokens = int64_t{4} << 20;  // tokens hashed between two releases of their pages

template <typename T>
void copy_tokens(const std::vector<T>& tokens, int64_t begin, std::span<uint32_t> out) {
  std::copy_n(tokens.begin() + begin, out.size(), out.begin());
}
void copy_tokens(const TokenShard& shard, int64_t begin, std::span<uint32_t> out) { shard.read(begin, out); }
void copy_tokens(const MegatronShard& shard, int64_t begin, std::span<uint32_t> out) {
  shard.read(begin, out);
}
void copy_tokens(const std::unique_ptr<const TokenReader>& reader, int64_t begin, std::span<uint32_t> out) {
  reader->read(begin, out);
}

using HashState = std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)>;

void hash_tokens(XXH3_state_t* state, const TokenSource& source, int64_t begin, int64_t end) {
  std::vector<uint32_t> chunk(static_cast<size_t>(std::min(kHashChunkTokens, end - begin)));
  for (; begin < end; begin += kHashChunkTokens) {
    chunk.resize(static_cast<size_t>(std::min(kHashChunkTokens, end - begin)));
    source.read(begin, chunk);
    XXH3_64bits_update(state, chunk.data(), chunk.size() * sizeof(uint32_t));
    if ((begin / kHashChunkTokens) % (kReleaseTokens / kHashChunkTokens) == 0) source.release();
  }
}
}  // namespace

void TokenSource::add_segment(Owner owner, int64_t tokens, int64_t skipped) {
  if (tokens > 0)
    segments_.push_back({std::make_shared<const Owner>(std::move(owner)), this->tokens(), tokens, skipped});
}

void TokenSource::add(const TokenSource& source) {
  if (source.tokens() == 0) return;
  if (tokens() == 0) {
    *this = source;
    return;
  }
  const int64_t begin = tokens();
  for (Segment segment : source.segments_) {
    segment.begin += begin;
    segments_.push_back(std::move(segment));
  }
  for (Stretch stretch : source.stretches_) {
    stretch.begin += begin;
    stretches_.push_back(std::move(stretch));
  }
  if (text_bytes_ && source.text_bytes_)
    *text_bytes_ += *source.text_bytes_;
  else
    text_bytes_.reset();
}

void TokenSource::set_documents(DocumentStarts documents) { stretches_ = {{0, std::move(documents)}}; }

void TokenSource::set_targets(std::vector<bool> is_target) {
  INGOT_CHECK(stretches_.size() == 1 && std::ssize(is_target) == tokens(),
              "TokenSource::set_targets: {} elements for {} tokens of {} streams", is_target.size(), tokens(),
              stretches_.size());
  stretches_.front().targets = std::make_shared<const std::vector<bool>>(std::move(is_target));
}

bool TokenSource::is_masked() const {
  return std::ranges::any_of(stretches_, [](const Stretch& stretch) { return stretch.targets != nullptr; });
}

int64_t TokenSource::targets() const {
  int64_t ignored = 0;
  for (const Stretch& stretch : stretches_)
    if (stretch.targets) ignored += std::ranges::count(*stretch.targets, false);
  if (stretches_.front().targets && !stretches_.front().targets->front())
    --ignored;  // no target, masked or not
  return tokens() - 1 - ignored;
}

const DocumentStarts& TokenSource::documents() const {
  INGOT_CHECK(stretches_.size() == 1, "TokenSource::documents: {} streams were joined", stretches_.size());
  return stretches_.front().documents;
}

void TokenSource::add(TokenShard shard) {
  const int64_t tokens = shard.tokens();
  add_segment(std::move(shard), tokens);
}
template <typename Shard>
void TokenSource::add_range(Shard shard, int64_t begin, int64_t count) {
  INGOT_CHECK(begin >= 0 && count >= 0 && begin + count <= shard.tokens(),
              "TokenSource::add: tokens [{}, {}) asked for, {} has {}", begin, begin + count,
              shard.path().string(), shard.tokens());
  add_segment(std::move(shard), count, begin);
}
void TokenSource::add(TokenShard shard, int64_t begin, int64_t count) {
  add_range(std::move(shard), begin, count);
}
void TokenSource::add(MegatronShard shard, int64_t begin, int64_t count) {
  add_range(std::move(shard), begin, count);
}
void TokenSource::add(std::vector<uint16_t> tokens) {
  const auto count = static_cast<int64_t>(tokens.size());
  add_segment(std::move(tokens), count);
}
void TokenSource::add(std::vector<uint32_t> tokens) {
  const auto count = static_cast<int64_t>(tokens.size());
  add_segment(std::move(tokens), count);
}
void TokenSource::add(std::unique_ptr<const TokenReader> reader) {
  const int64_t tokens = reader->tokens();
  add_segment(std::move(reader), tokens);
}

void TokenSource::set_pairs() {
  references_ = std::make_shared<std::vector<float>>(documents().positions.size());
}

size_t TokenSource::document_of(int64_t position) const {
  const std::vector<int64_t>& positions = documents().positions;
  return static_cast<size_t>(std::ranges::upper_bound(positions, position) - positions.begin()) - 1;
}

void TokenSource::read_references(int64_t begin, std::span<const int32_t> doc_start,
                                  std::span<float> out) const {
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<size_t>(doc_start[i]) == i
                 ? (*references_)[document_of(begin + static_cast<int64_t>(i))]
                 : 0.0f;
}

size_t TokenSource::segment_of(int64_t position) const {
  const auto after = std::upper_bound(segments_.begin(), segments_.end(), position,
                                      [](int64_t p, const Segment& segment) { return p < segment.begin; });
  return static_cast<size_t>(after - segments_.begin()) - 1;
}

std::optional<int64_t> TokenSource::bytes_of(int64_t begin, int64_t count) const {
  if (!token_bytes_ || is_masked()) return std::nullopt;
  std::vector<uint32_t> chunk;
  int64_t sum = 0;
  for (const int64_t end = begin + count; begin < end; begin += std::ssize(chunk)) {
    chunk.resize(static_cast<size_t>(std::min<int64_t>(1 << 16, end - begin)));
    read(begin, chunk);
    for (const uint32_t id : chunk) {
      if (id >= token_bytes_->size() || (*token_bytes_)[id] == kNoToken) return std::nullopt;
      sum += (*token_bytes_)[id];
    }
  }
  return sum;
}

size_t TokenSource::stretch_of(int64_t position) const {
  const auto after = std::upper_bound(stretches_.begin(), stretches_.end(), position,
                                      [](int64_t p, const Stretch& stretch) { return p < stretch.begin; });
  return static_cast<size_t>(after - stretches_.begin()) - 1;
}

int64_t TokenSource::mask_targets(int64_t begin, std::span<int32_t> targets) const {
  int64_t counted = 0;
  size_t stretch = stretch_of(begin);
  for (int32_t& target : targets) {
    while (stretch + 1 < stretches_.size() && stretches_[stretch + 1].begin <= begin) ++stretch;
    const auto& [first, documents, is_target] = stretches_[stretch];
    if (!is_target || (*is_target)[static_cast<size_t>(begin - first)])
      ++counted;
    else
      target = kIgnoreIndex;
    ++begin;
  }
  return counted;
}

void TokenSource::read(int64_t begin, std::span<uint32_t> out) const {
  INGOT_CHECK(begin >= 0 && begin + static_cast<int64_t>(out.size()) <= tokens(),
              "TokenSource::read: tokens [{}, {}) asked for, there are {}", begin,
              begin + static_cast<int64_t>(out.size()), tokens());
  for (size_t i = out.empty() ? 0 : segment_of(begin); !out.empty(); ++i) {
    const Segment& segment = segments_[i];
    const int64_t from = begin - segment.begin;
    const auto count =
        static_cast<size_t>(std::min<int64_t>(segment.tokens - from, static_cast<int64_t>(out.size())));
    std::visit([&](const auto& owner) { copy_tokens(owner, from + segment.skipped, out.first(count)); },
               *segment.owner);
    out = out.subspan(count);
    begin += static_cast<int64_t>(count);
  }
}

void TokenSource::mark_documents(int64_t begin, std::span<const uint32_t> window,
                                 std::span<int32_t> doc_start) const {
  INGOT_CHECK(doc_start.size() <= window.size(), "mark_documents: {} marks asked for a window of {} tokens",
              doc_start.size(), window.size());
  int32_t current = 0;
  size_t i = 0;  // in the window
  for (auto stretch = stretches_.begin() + static_cast<std::ptrdiff_t>(stretch_of(begin));
       i < doc_start.size(); ++stretch) {
    const auto next_stretch = stretch + 1;
    const int64_t end = next_stretch == stretches_.end() ? tokens() : next_stretch->begin;
    const auto count = std::min(doc_start.size(), static_cast<size_t>(end - begin));
    const auto& [end_of_text, positions] = stretch->documents;
    auto next = std::lower_bound(positions.begin(), positions.end(),
                                 begin + static_cast<int64_t>(i) - stretch->begin);
    if (i > 0) current = static_cast<int32_t>(i);  // another stream begins here
    for (; i < count; ++i) {
      bool begins = end_of_text && window[i] == *end_of_text;
      const int64_t position = begin + static_cast<int64_t>(i) - stretch->begin;
      for (; !end_of_text && next != positions.end() && *next == position; ++next) begins = true;
      if (begins) current = static_cast<int32_t>(i);
      doc_start[i] = current;
    }
  }
}

uint64_t TokenSource::content_hash(int64_t full_tokens) const {
  INGOT_CHECK(full_tokens >= kHashBlocks,
              "TokenSource::content_hash: full_tokens must be at least {}, got {}", kHashBlocks, full_tokens);
  const HashState state(XXH3_createState(), XXH3_freeState);
  INGOT_CHECK(state != nullptr, "TokenSource::content_hash: no memory for the hash");
  XXH3_64bits_reset(state.get());
  const int64_t count = tokens();
  if (count <= full_tokens) {
    hash_tokens(state.get(), *this, 0, count);
  } else {
    XXH3_64bits_update(state.get(), &count, sizeof count);
    const int64_t block = full_tokens / kHashBlocks;
    for (int64_t i = 0; i < kHashBlocks; ++i) {
      // The product needs 128 bits: it exceeds 2^63 from 2^51 tokens on.
      const auto begin = static_cast<int64_t>(static_cast<__int128>(count - block) * i / (kHashBlocks - 1));
      hash_tokens(state.get(), *this, begin, begin + block);
    }
  }
  release();
  return XXH3_64bits_digest(state.get());
}

void TokenSource::release() const {
  for (const Segment& segment : segments_)
    std::visit(
        [](const auto& owner) {
          if constexpr (requires { owner.release(); }) owner.release();
        },
        *segment.owner);
}

std::string TokenSource::place(int64_t position) const {
  INGOT_CHECK(position >= 0 && position < tokens(), "TokenSource::place: token {} of {}", position, tokens());
  const Segment& segment = segments_[segment_of(position)];
  return std::visit(
      [&](const auto& owner) {
        if constexpr (requires { owner.path(); })
          return fmt::format("{}, token {}", owner.path().string(),
                             position - segment.begin + segment.skipped);
        else
          return fmt::format("tokenized text, token {}", position);
      },
      *segment.owner);
}

}  // namespace ingot
