// Normalizes text as the steps of a tokenizer.json say. The Unicode forms and lower case come from utf8proc (Unicode
// 15.0 in Debian 12). A byte that is not UTF-8 is left as it is: each stretch of valid UTF-8 is normalized by itself.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ingot/formats/tokenizer/tokenizer_pipeline.h"

namespace ingot {

class Normalizer {
 public:
  explicit Normalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {}

  bool is_identity() const { return steps_.empty(); }
  bool prepends() const;  // has a Prepend step

  // Returns the normalized text, which is `text` itself if it is normalized already; otherwise the view is into
  // `storage`. A text that is not the first chunk of its stretch gets no Prepend. An empty text stays empty.
  std::string_view apply(std::string_view text, bool is_first_chunk, std::string& storage) const;

  // Returns true if a text may be cut before any ASCII space that follows a character other than white space: both
  // halves, normalized one after the other, are the whole normalized text. `marker` is what Replace makes of a
  // space; only that replacement is allowed.
  bool is_local(std::string_view marker) const;

 private:
  std::vector<NormalizerStep> steps_;
};

}  // namespace ingot
