// XXH3-64 hash of a stream of bytes.
#pragma once

#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "ingot/core/error.h"

namespace ingot {

class Xxh3 {
 public:
  Xxh3() : state_(XXH3_createState()) {
    INGOT_CHECK(state_ != nullptr, "out of memory for a hash state");
    reset();
  }
  void reset() { XXH3_64bits_reset(state_.get()); }
  void add(std::span<const std::byte> bytes) { XXH3_64bits_update(state_.get(), bytes.data(), bytes.size()); }
  uint64_t value() const { return XXH3_64bits_digest(state_.get()); }

 private:
  struct Deleter {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Deleter> state_;
};

}  // namespace ingot
