// What the FP8 casts of a model did since the last reset, tensor by tensor: one counter for each tensor that
// the model casts, named when it is built.
#pragma once

#include <string>
#include <vector>

#include "ingot/ops/cast_fp8.h"

namespace ingot {

class Fp8Counters {
 public:
  struct Entry {
    std::string name;  // "head.w", "blocks.0.mlp.up.x"
    Fp8Stats stats;
  };

  explicit Fp8Counters(const std::vector<std::string>& names) {
    for (const std::string& name : names) entries_.push_back({name, {}});
  }

  Fp8Stats& operator[](int tensor) { return entries_[static_cast<size_t>(tensor)].stats; }
  const std::vector<Entry>& entries() const { return entries_; }
  Fp8Stats total() const {
    Fp8Stats all;
    for (const Entry& entry : entries_) all.add(entry.stats);
    return all;
  }
  void reset() {
    for (Entry& entry : entries_) entry.stats = {};
  }

 private:
  std::vector<Entry> entries_;
};

}  // namespace ingot
