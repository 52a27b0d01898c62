#include "ingot/data/tokenizer/tokenizer_build.h"

#include <algorithm>
#include <array>

#include "ingot/core/error.h"
#include "ingot/core/parallel.h"
#include "ingot/data/tokenizer/added_tokens.h"
#include "ingot/data/tokenizer/bpe_encoder.h"
#include "ingot/data/tokenizer/pretokenize.h"
#include "ingot/data/tokenizer/workspace_pool.h"
#include "ingot/formats/tokenizer_json.h"

namespace ingot {
namespace {

constexpr size_t kEncodeChunkBytes = size_t{128} << 10;  // bytes of text that one thread encodes at a time
constexpr size_t kEncodedAtOnce = 1024;

class BpeTokenizer final : public Tokenizer {
 public:
  explicit BpeTokenizer(TokenizerSpec spec)
      : spec_(std::move(spec)),
        vocab_(spec_),
        added_(spec_.added),
        pretokenizer_(spec_.pattern),
        encoder_(spec_.tokens, spec_.merges, spec_.takes_whole_pieces) {
    spec_.pattern = pretokenizer_.expression();
  }

  void encode(std::string_view text, std::vector<TokenId>& out) const override {
    const std::vector<size_t> cuts = chunk_ends(text);
    if (cuts.size() <= 1) {
      encode_chunk(text, 0, text.size(), out);
      return;
    }
    std::vector<std::vector<TokenId>> parts(cuts.size());
    parallel_for(static_cast<int64_t>(cuts.size()), 1, [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        parts[i].reserve((cuts[i] - (i ? cuts[i - 1] : 0)) / 3);
        encode_chunk(text, i ? cuts[i - 1] : 0, cuts[i], parts[i]);
      }
    });
    size_t token_count = out.size();
    for (const std::vector<TokenId>& part : parts) token_count += part.size();
    out.reserve(token_count);
    for (std::vector<TokenId>& part : parts) {
      out.insert(out.end(), part.begin(), part.end());
      std::vector<TokenId>().swap(part);
    }
  }

  void encode_with_special(std::string_view text, std::vector<TokenId>& out) const override {
    encode_around(added_, text, out, [this, &out](std::string_view rest) { encode(rest, out); });
  }

  size_t find_cut(std::string_view text, size_t from) const override {
    // Without merges, every byte is a token, so any position is a cut.
    if (spec_.merges.empty() && !spec_.takes_whole_pieces) return std::min(from, text.size());
    return pretokenizer_.find_cut(text, from);
  }

  void append_bytes(TokenId id, std::string& out) const override { vocab_.append_bytes(id, out); }
  int64_t vocab_size() const override { return vocab_.size(); }
  std::optional<TokenId> end_of_text() const override { return vocab_.end_of_text(); }
  std::string to_json() const override {
    static constexpr std::string_view kGpt2 = "gpt2";
    return write_tokenizer_json(spec_, spec_.pattern == Pretokenizer(kGpt2).expression());
  }

 private:
  bool has_added_token_at(std::string_view text, size_t at) const override {
    return added_.may_lie_at(text, at);
  }
  // Returns the ends of the chunks to encode in parallel. A chunk without a possible cut is longer than
  // the others.
  std::vector<size_t> chunk_ends(std::string_view text) const {
    std::vector<size_t> ends;
    for (size_t begin = 0; begin < text.size();) {
      begin = text.size() - begin <= 2 * kEncodeChunkBytes
                  ? text.size()
                  : pretokenizer_.find_cut(text, begin + kEncodeChunkBytes);
      ends.push_back(begin);
    }
    return ends;
  }

  void encode_chunk(std::string_view text, size_t begin, size_t end, std::vector<TokenId>& out) const {
    std::unique_ptr<BpeWorkspace> workspace = workspaces_.take();
    PieceReader reader(pretokenizer_, text, begin, end);
    std::array<size_t, kEncodedAtOnce> ends;
    std::vector<TokenId> ids;
    while (const size_t count = reader.next(ends)) {
      ids.resize(std::max(ids.size(), ends[count - 1] - begin));
      TokenId* last = ids.data();
      for (size_t i = 0; i < count; ++i) {
        last = encoder_.encode(text.substr(begin, ends[i] - begin), last, *workspace);
        begin = ends[i];
      }
      out.insert(out.end(), ids.data(), last);
    }
    workspaces_.give_back(std::move(workspace));
  }

  TokenizerSpec spec_;
  TokenVocab vocab_;
  AddedTokens added_;
  Pretokenizer pretokenizer_;
  BpeEncoder encoder_;
  mutable WorkspacePool workspaces_;  // guarded by its own mutex
};

}  // namespace

std::unique_ptr<Tokenizer> make_bpe_tokenizer(TokenizerSpec spec) {
  return std::make_unique<BpeTokenizer>(std::move(spec));
}

}  // namespace ingot
