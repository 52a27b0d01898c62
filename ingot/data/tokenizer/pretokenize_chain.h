// PreTokenizerChain applies the pre-tokenizers of a tokenizer.json one after the other: each splits the
// pieces of the previous one, as in the library `tokenizers`. Bytes that are not UTF-8 count as symbols; a
// regular expression skips them, and a run of them is a piece of its own. Steps after ByteLevel see its
// spelling of the bytes.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ingot/data/tokenizer/pretokenize.h"
#include "ingot/formats/tokenizer/tokenizer_pipeline.h"

namespace ingot {

struct PieceRange {
  size_t begin, end;  // offsets in SplitText::text
};

// SplitText holds a text and its pieces. A step may rewrite the text; then `text` is a view into `storage`.
struct SplitText {
  std::string_view text;
  std::string storage;
  std::vector<PieceRange> pieces;  // in order, none empty; text between them is dropped
};

class PreTokenizerChain {
 public:
  // kData error if PCRE2 refuses an expression.
  explicit PreTokenizerChain(const std::vector<PreTokenizerStep>& steps);
  ~PreTokenizerChain();
  PreTokenizerChain(PreTokenizerChain&&) noexcept;

  // Splits one stretch of normalized text. is_text_begin: true if the whole text begins with it. Thread-safe.
  void split(std::string_view text, bool is_text_begin, SplitText& out) const;

  // Returns true if a piece begins at every ASCII space that follows a character other than white space, and
  // the pieces on either side of that space do not depend on the text on the other side.
  bool splits_at_spaces() const;
  // Returns true if the steps only split at spaces, replace spaces by the marker, and prepend it to texts.
  bool only_marks(std::string_view marker) const;

 private:
  struct Step;
  std::vector<Step> steps_;
};

}  // namespace ingot
