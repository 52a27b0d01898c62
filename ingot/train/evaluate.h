// The loss of a model on a stream of tokens.
#pragma once

#include "ingot/data/loader.h"
#include "ingot/nn/transformer.h"

namespace ingot {

struct EvalResult {
  double loss = 0;  // mean, nats per token
  double top1 = 0;
  int64_t tokens = 0;        // predicted
  double bits_per_byte = 0;  // of the text the tokens stand for; 0 where its size is not known
};

// Walks the text in consecutive windows of T tokens, B at a time; every token but the first is predicted
// once. max_tokens > 0 stops after about so many. ctx: without dropout; saved: of (B, T), whose contents are
// lost.
EvalResult evaluate(const Transformer& model, LayerContext& ctx, Transformer::Saved& saved,
                    const TokenSource& text, int64_t max_tokens, bool has_document_mask);

}  // namespace ingot
