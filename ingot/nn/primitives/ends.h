// The ends of the model: the embedding, and the loss head.
#pragma once

#include "ingot/nn/loss_head.h"
#include "ingot/nn/program/builder.h"

namespace ingot {

struct EmbeddingSpec {
  int table = -1, positions = -1;  // parameters (Vp, C), this rank's rows, and (context, C); -1: none
  int64_t Vp = 0, C = 0;           // the whole table is (Vp, C)
  bool splits_columns = false;     // ranks split the table by columns instead, and C are this rank's
};

// Returns the embedding of the tokens, as the residual stream lies on the ranks, or split by columns like the
// table.
ValueId embedding(Builder& b, const EmbeddingSpec& spec);

// The results of the loss head.
struct Losses {
  ValueId losses, is_correct, sums;  // (N) f32, (N) u8, (1 + kCheckSums, kLossTotalsBytes) u8
  ValueId counted = kNoValue;        // (N) i32, the rows that the sums count; kNoValue: those with a target
  ValueId rewards = kNoValue;        // (2, N) f32, for LossHead::has_pairs()
  ValueId d = kNoValue;              // the gradient of x; kNoValue outside training
};
// Computes the losses of x (n, C), and in training the gradient of x. The head must outlive the list.
Losses losses(Builder& b, ValueId x, const LossHead& head);

}  // namespace ingot
