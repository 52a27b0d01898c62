// Reads the steps of a tokenizer.json. The functions throw kData errors that name the place for steps and
// options that are not supported.
#pragma once

#include <vector>

#include "ingot/formats/tokenizer/json_node.h"
#include "ingot/formats/tokenizer/tokenizer_pipeline.h"

namespace ingot {

// Each takes one component, which may be null or a Sequence of others.
std::vector<NormalizerStep> read_normalizers(const JsonNode& node);
std::vector<PreTokenizerStep> read_pre_tokenizers(const JsonNode& node);
std::vector<DecoderStep> read_decoders(const JsonNode& node);

}  // namespace ingot
