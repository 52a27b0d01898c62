// Loader: batches of (tokens, targets) in the sampler's order, made ahead by a thread of their own.
// EvalWindows: the same batches for one walk through a text from its beginning to its end.
//
// targets[b][t] is the token after tokens[b][t]. With the document mask on, doc_start tells attention where
// the document of each token begins, and no target is dropped: a document begins at its end-of-text token, so
// the end of one document is predicted from that document (target: end of text), and the first token of the
// next is predicted from the end-of-text token alone, which sees nothing before itself.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "ingot/core/tensor.h"
#include "ingot/data/sampler.h"
#include "ingot/data/token_source.h"

namespace ingot {

inline constexpr int32_t kIgnoredTarget = -100;

struct BatchShape {
  int64_t batch = 1;           // B: rows
  int64_t context = 1;         // T: tokens of a row
  int64_t vocab_size = 0;      // every id must be below it
  bool document_mask = false;  // fill Batch::doc_start

  void validate() const;  // kUsage error
};

// Views of memory that the loader or walk owns.
struct Batch {
  Tensor tokens;     // (B,T) i32
  Tensor targets;    // (B,T) i32, kIgnoredTarget where there is none
  Tensor doc_start;  // (B,T) i32: index in the row where the document of the token begins; or absent
  int64_t counted_targets = 0;  // targets that are not ignored
  int64_t first_sample = 0;     // global sample index of row 0 (Loader), window index (EvalWindows)
};

struct LoaderConfig {
  BatchShape shape;
  // Of several readers (ranks) that share a run, each takes every readers-th group of B samples.
  int64_t readers = 1;
  int64_t reader = 0;
  int64_t ring = 4;  // batches held: one with the caller, the others made ahead; at least 2

  void validate() const;  // kUsage error
};

class Loader {
 public:
  // Starts the thread. `source` is borrowed and must outlive the loader.
  Loader(const TokenSource& source, const Sampler& sampler, const LoaderConfig& config);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // The next batch, valid until the next call of next() or seek(). Rethrows what went wrong in the thread:
  // kData for an id outside the vocabulary. Allocates nothing. One caller at a time.
  const Batch& next();
  // Seconds that the last next(), and all of them together, stood waiting for the thread.
  double last_wait_s() const { return last_wait_s_; }
  double total_wait_s() const { return total_wait_s_; }

  // The next batch begins at this global sample (the counter of a checkpoint). REQUIRES: a multiple of B *
  // readers.
  void seek(int64_t global_sample);
  // The global sample that the next batch begins a round at: what a checkpoint keeps.
  int64_t position() const { return position_; }

 private:
  struct Slot {
    std::vector<int32_t> tokens, targets, doc_start;
    Batch batch;
  };
  void produce(std::stop_token stop);
  void fill(Slot& slot, int64_t global_sample);
  size_t slot_index(int64_t batch_number) const { return static_cast<size_t>(batch_number) % slots_.size(); }

  const TokenSource& source_;
  const Sampler sampler_;
  const LoaderConfig config_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> row_;  // the thread's: context + 1 tokens
  // The caller's.
  int64_t position_ = 0;
  double last_wait_s_ = 0, total_wait_s_ = 0;
  // Shared, under mutex_. Batches are numbered from the last seek; [taken_, made_) are ready.
  std::mutex mutex_;
  std::condition_variable_any changed_;
  int64_t generation_ = 0;    // of seeks
  int64_t first_sample_ = 0;  // of batch 0 of this generation
  int64_t made_ = 0, taken_ = 0;
  bool is_held_ = false;        // batch taken_ - 1 is with the caller
  std::exception_ptr failure_;  // of this generation; ends it
  std::jthread thread_;         // last: stops before the rest goes
};

// Consecutive windows of `context` tokens, from the first to the last: window w has inputs [w*T, (w+1)*T) and
// their next tokens as targets, so every token but the first is a target exactly once. Where the text ends,
// inputs are 0 and targets kIgnoredTarget. Of several readers, each takes every readers-th group of B
// windows; all come to the end after the same number of batches, some of which may hold no target.
class EvalWindows {
 public:
  // `source` is borrowed. kData error if it has fewer than 2 tokens.
  EvalWindows(const TokenSource& source, const BatchShape& shape, int64_t readers = 1, int64_t reader = 0);

  // The next batch, valid until the next call; null at the end. kData error for an id outside the vocabulary.
  const Batch* next();
  void rewind() { next_round_ = 0; }
  // The walk ends before this window, if the text does not end earlier.
  void end_at(int64_t window) { end_ = std::min(window, windows()); }

  int64_t windows() const { return (source_.tokens() - 1 + shape_.context - 1) / shape_.context; }
  int64_t batches() const { return (windows() + shape_.batch - 1) / shape_.batch; }  // of one reader alone
  int64_t targets() const { return source_.tokens() - 1; }

 private:
  const TokenSource& source_;
  const BatchShape shape_;
  const int64_t readers_, reader_;
  int64_t end_;
  std::vector<int32_t> tokens_, targets_, doc_start_;
  std::vector<uint32_t> row_;
  Batch batch_;
  int64_t next_round_ = 0;  // window that the next round of all readers begins with
};

}  // namespace ingot
