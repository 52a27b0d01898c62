// Normalizer applies the normalizer steps of a tokenizer.json to text. The Unicode forms and lower case come
// from utf8proc (Unicode 15.0 in Debian 12). Bytes that are not UTF-8 stay unchanged: each stretch of valid
// UTF-8 is normalized separately.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ingot/formats/tokenizer/tokenizer_pipeline.h"

namespace ingot {

class Normalizer {
 public:
  explicit Normalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {}

  bool prepends() const;  // has a Prepend step

  // Returns the normalized text, a view into `text` or `storage`. Prepend applies only to the first chunk
  // of a stretch. An empty text stays empty.
  std::string_view apply(std::string_view text, bool is_first_chunk, std::string& storage) const;

  // Returns true if a text may be cut before any ASCII space that follows a character other than white
  // space: the normalized halves, joined, are then the normalized whole. Of all Replace steps, only one
  // that replaces spaces by `marker` is allowed.
  bool is_local(std::string_view marker) const;

 private:
  std::vector<NormalizerStep> steps_;
};

}  // namespace ingot
