// BPE within the steps of a tokenizer.json: added tokens, normalizers, pre-tokenizers, merging and decoders.
#include <algorithm>
#include <unordered_map>

#include "ingot/core/error.h"
#include "ingot/core/parallel.h"
#include "ingot/data/tokenizer/added_tokens.h"
#include "ingot/data/tokenizer/bpe_encoder.h"
#include "ingot/data/tokenizer/normalize.h"
#include "ingot/data/tokenizer/pretokenize_chain.h"
#include "ingot/data/tokenizer/token_decoder.h"
#include "ingot/data/tokenizer/tokenizer_build.h"
#include "ingot/data/tokenizer/unicode.h"
#include "ingot/data/tokenizer/workspace_pool.h"
#include "ingot/formats/tokenizer_json.h"

namespace ingot {
namespace {

constexpr size_t kPipelineChunkBytes = size_t{128} << 10;  // bytes of text that one thread encodes at a time

using Stretch = AddedTokenMatcher::Stretch;

// Returns what a space becomes if it becomes a marker, by the normalizer or by Metaspace; else an empty
// string.
std::string marker_of(const TokenizerPipeline& pipeline) {
  for (const NormalizerStep& step : pipeline.normalizers)
    if (step.type == NormalizerStep::Type::kReplace && step.pattern == " ") return step.content;
  for (const PreTokenizerStep& step : pipeline.pre_tokenizers)
    if (step.type == PreTokenizerStep::Type::kMetaspace) return step.marker;
  return "";
}

// Returns true if no merge joins a token that ends in something else with one that begins with the marker.
// Then merging never crosses the place before a marker, and the text may be cut there.
bool merges_respect(std::string_view marker, const TokenizerSpec& spec) {
  // No other character becomes this one by a Unicode form.
  if (marker != "\u2581" || std::find(spec.tokens.begin(), spec.tokens.end(), marker) == spec.tokens.end())
    return false;
  std::unordered_map<uint32_t, std::string_view> added;
  for (const AddedToken& token : spec.added) added.emplace(token.id, token.content);
  const auto text_of = [&](uint32_t id) -> std::string_view {
    if (id < spec.tokens.size() && !spec.tokens[id].empty()) return spec.tokens[id];
    const auto found = added.find(id);
    return found == added.end() ? std::string_view() : found->second;
  };
  return std::all_of(spec.merges.begin(), spec.merges.end(), [&](const TokenizerMerge& merge) {
    return !text_of(merge.right).starts_with(marker) || text_of(merge.left).ends_with(marker);
  });
}

class PipelineTokenizer final : public Tokenizer {
 public:
  explicit PipelineTokenizer(TokenizerSpec spec)
      : spec_(std::move(spec)),
        vocab_(spec_),
        decoder_(spec_),
        normalizer_(spec_.pipeline.normalizers),
        chain_(spec_.pipeline.pre_tokenizers),
        encoder_(spec_),
        added_(spec_.added, normalizer_),
        marker_(marker_of(spec_.pipeline)) {
    for (const AddedToken& token : spec_.added) has_ordinary_added_ |= !token.is_special;
    const bool is_marked = chain_.only_marks(marker_) && merges_respect(marker_, spec_);
    cuts_pieces_at_marker_ = is_marked && !spec_.takes_whole_pieces;
    const bool splits = chain_.splits_at_spaces() && normalizer_.is_local(" ");
    is_local_ = (splits || (cuts_pieces_at_marker_ && normalizer_.is_local(marker_))) &&
                added_.in_normalized.is_local(marker_);
    may_be_cut_ = is_local_ && !normalizer_.prepends() && added_.in_text.is_local(marker_);
  }

  void encode(std::string_view text, std::vector<TokenId>& out) const override {
    encode_text(text, false, out);
  }
  void encode_with_special(std::string_view text, std::vector<TokenId>& out) const override {
    encode_text(text, true, out);
  }
  size_t find_cut(std::string_view text, size_t from) const override {
    return may_be_cut_ ? cut_after(text, from) : text.size();
  }

  void append_bytes(TokenId id, std::string& out) const override {
    std::string content;
    vocab_.append_bytes(id, content);  // fails for an id without a token
    out += decoder_.text_of(id);
  }
  void append_text(std::span<const TokenId> ids, std::string& out) const override {
    std::string content;
    for (const TokenId id : ids) vocab_.append_bytes(id, content), content.clear();
    decoder_.append_all(ids, out);
  }
  int64_t vocab_size() const override { return vocab_.size(); }
  std::optional<TokenId> end_of_text() const override { return vocab_.end_of_text(); }
  std::string to_json() const override { return write_tokenizer_json(spec_, false); }

 private:
  bool has_added_token_at(std::string_view text, size_t at) const override {
    return added_.may_lie_at(text, at);
  }
  // A range of the text that one call of encode_chunk() encodes, or one added token.
  struct Item {
    size_t begin, end;
    std::optional<TokenId> token;
    bool begins_stretch;  // the item begins the text or follows an added token
  };

  // Returns the first place from `from` on that is before a space which follows a character other than white
  // space and the marker.
  size_t cut_after(std::string_view text, size_t from) const {
    for (size_t i = text.find(' ', std::max<size_t>(from, 1)); i < text.size(); i = text.find(' ', i + 1)) {
      size_t before = i - 1;
      while (before > 0 && i - before < 4 && (static_cast<uint8_t>(text[before]) & 0xC0u) == 0x80u) --before;
      const CodePoint c = decode_utf8(text, before);
      if (!c.is_valid() || before + c.length_bytes != i || char_class(c.value) == CharClass::kSpace) continue;
      if (marker_.empty() || !text.substr(0, i).ends_with(marker_)) return i;
    }
    return text.size();
  }

  std::vector<Item> items_of(std::string_view text, bool takes_special) const {
    std::vector<Stretch> stretches;
    if (takes_special || has_ordinary_added_)
      added_.in_text.split(text, takes_special, stretches);
    else if (!text.empty())
      stretches.push_back({0, text.size(), std::nullopt});
    std::vector<Item> items;
    for (const Stretch& stretch : stretches) {
      const std::string_view inside = text.substr(0, stretch.end);
      bool is_first = true;
      for (size_t begin = stretch.begin; begin < stretch.end; is_first = false) {
        const bool is_last = stretch.token || !is_local_ || stretch.end - begin <= 2 * kPipelineChunkBytes;
        const size_t end = is_last ? stretch.end : cut_after(inside, begin + kPipelineChunkBytes);
        items.push_back({begin, end, stretch.token, is_first});
        begin = end;
      }
    }
    return items;
  }

  // Encodes the items in groups of about kPipelineChunkBytes, in parallel.
  void encode_text(std::string_view text, bool takes_special, std::vector<TokenId>& out) const {
    const std::vector<Item> items = items_of(text, takes_special);
    std::vector<size_t> group_ends;
    for (size_t i = 0, begin = 0; i < items.size(); ++i)
      if (i + 1 == items.size() || items[i].end - begin >= kPipelineChunkBytes) {
        group_ends.push_back(i + 1);
        begin = items[i].end;
      }
    const auto encode_group = [&](size_t group, std::vector<TokenId>& ids) {
      std::unique_ptr<BpeWorkspace> workspace = workspaces_.take();
      for (size_t i = group ? group_ends[group - 1] : 0; i < group_ends[group]; ++i) {
        if (items[i].token)
          ids.push_back(*items[i].token);
        else
          encode_chunk(text, items[i], takes_special, *workspace, ids);
      }
      workspaces_.give_back(std::move(workspace));
    };
    if (group_ends.size() == 1) return encode_group(0, out);
    std::vector<std::vector<TokenId>> parts(group_ends.size());
    parallel_for(static_cast<int64_t>(parts.size()), 1, [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) encode_group(i, parts[i]);
    });
    for (std::vector<TokenId>& part : parts) {
      out.insert(out.end(), part.begin(), part.end());
      std::vector<TokenId>().swap(part);
    }
  }

  void encode_chunk(std::string_view text, const Item& item, bool takes_special, BpeWorkspace& workspace,
                    std::vector<TokenId>& out) const {
    std::string storage;
    const std::string_view normalized =
        normalizer_.apply(text.substr(item.begin, item.end - item.begin), item.begins_stretch, storage);
    std::vector<Stretch> stretches;
    if ((takes_special || has_ordinary_added_) && !added_.in_normalized.is_empty())
      added_.in_normalized.split(normalized, takes_special, stretches);
    else if (!normalized.empty())
      stretches.push_back({0, normalized.size(), std::nullopt});
    SplitText split;
    for (const Stretch& stretch : stretches) {
      if (stretch.token) {
        out.push_back(*stretch.token);
        continue;
      }
      chain_.split(normalized.substr(stretch.begin, stretch.end - stretch.begin),
                   item.begin == 0 && stretch.begin == 0, split);
      for (const PieceRange& piece : split.pieces)
        encode_piece(split.text.substr(piece.begin, piece.end - piece.begin), workspace, out);
    }
  }

  void encode_piece(std::string_view piece, BpeWorkspace& workspace, std::vector<TokenId>& out) const {
    while (!piece.empty()) {
      const size_t length = cuts_pieces_at_marker_ ? word_length(piece) : piece.size();
      const size_t before = out.size();
      out.resize(before + length);
      const TokenId* end = encoder_.encode(piece.substr(0, length), out.data() + before, workspace);
      out.resize(static_cast<size_t>(end - out.data()));
      piece.remove_prefix(length);
    }
  }

  // Returns the length of the first word: up to a marker that does not follow another one.
  size_t word_length(std::string_view piece) const {
    size_t i = 0;
    while (piece.substr(i).starts_with(marker_)) i += marker_.size();
    return std::min(piece.find(marker_, i), piece.size());
  }

  TokenizerSpec spec_;
  TokenVocab vocab_;
  TokenDecoder decoder_;
  Normalizer normalizer_;
  PreTokenizerChain chain_;
  BpeEncoder encoder_;
  AddedTokens added_;
  std::string marker_;
  bool has_ordinary_added_ = false;
  bool cuts_pieces_at_marker_ = false;  // words are merged one by one
  bool is_local_ = false;               // a stretch may be encoded in chunks that are cut by cut_after()
  bool may_be_cut_ = false;             // the chunks may even be encoded as texts of their own
  mutable WorkspacePool workspaces_;    // guarded by its own mutex
};

}  // namespace

std::unique_ptr<Tokenizer> make_pipeline_tokenizer(TokenizerSpec spec) {
  return std::make_unique<PipelineTokenizer>(std::move(spec));
}

}  // namespace ingot
