// Loader makes batches of (tokens, targets) in the sampler's order, ahead of time on threads of its own.
// EvalWindows makes the same kind of batches for one pass over a text from beginning to end. A BatchSource is
// what a trainer takes batches from: a Loader, or a caller's own batches (data/given_batches.h).
//
// targets[b][t] is the token after tokens[b][t]. With the document mask on, doc_start tells attention
// where the document of each token begins. The targets that the source masks are kIgnoreIndex. No other
// target is dropped: a document begins at its end-of-text token, so the end of one document is predicted from
// that document (its target is the end-of-text token), and the first token of the next document is predicted
// from the end-of-text token, which attends only to itself.
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

#include "ingot/core/ignore_index.h"
#include "ingot/core/tensor.h"
#include "ingot/data/sampler.h"
#include "ingot/data/token_source.h"

namespace ingot {

struct BatchShape {
  int64_t batch = 1;           // B: rows of a batch
  int64_t context = 1;         // T: tokens of a row
  int64_t vocab_size = 0;      // ids must be below it
  bool document_mask = false;  // true to fill Batch::doc_start

  void validate() const;  // kUsage error
};

// Views of memory owned by the Loader or EvalWindows.
struct Batch {
  Tensor tokens;     // (B,T) i32
  Tensor targets;    // (B,T) i32; kIgnoreIndex where there is no target
  Tensor doc_start;  // (B,T) i32: index in the row where the token's document begins; absent without mask
  // (B,T) f32: TokenSource::references() at the first token of each document; absent without pairs
  Tensor reference = {};
  int64_t counted_targets = 0;  // number of targets that are not ignored
  int64_t first_sample = 0;     // global sample index of row 0 (Loader) or its window index (EvalWindows)
};

class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // Returns the next batch, valid until the next call of next() or seek().
  virtual const Batch& next() = 0;
  // Seconds that the last next() waited for a batch.
  virtual double last_wait_s() const { return 0; }
  // Makes the next batch begin at this global sample, which position() has returned before.
  virtual void seek(int64_t global_sample) = 0;
  // First global sample of the next round over all readers.
  virtual int64_t position() const = 0;
};

struct BatchMemory {
  std::vector<int32_t> tokens, targets, doc_start;
  std::vector<float> reference;
};

struct LoaderConfig {
  BatchShape shape;
  // The number of readers (ranks) that share a run. Each takes every readers-th group of B samples.
  int64_t readers = 1;
  int64_t reader = 0;
  int64_t workers = 1;   // threads that make batches, each whole ones; 0: next() makes them itself
  int64_t prefetch = 3;  // batches that are made ahead for each worker

  int64_t ring() const { return workers * prefetch + 1; }  // number of batch buffers: the caller holds one

  void validate() const;  // kUsage error
};

class Loader final : public BatchSource {
 public:
  // Starts the workers, which wait for the first next() or seek(). `source` is borrowed and must outlive the
  // loader.
  Loader(const TokenSource& source, const Sampler& sampler, const LoaderConfig& config);
  ~Loader() override;
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // Returns the next batch, valid until the next call of next() or seek(). The batches do not depend on the
  // number of workers. Throws the error that ended the making of this batch: kData for an id outside the
  // vocabulary. Allocates nothing. Must not be called from two threads at once.
  const Batch& next() override;
  // Seconds that the last next(), and all calls in total, waited for a batch.
  double last_wait_s() const override { return last_wait_s_; }
  double total_wait_s() const { return total_wait_s_; }

  // Makes the next batch begin at this global sample (the counter of a checkpoint). REQUIRES:
  // global_sample is a non-negative multiple of B * readers.
  void seek(int64_t global_sample) override;
  // First global sample of the next round over all readers; a checkpoint stores it.
  int64_t position() const override { return position_; }

 private:
  struct Slot {
    BatchMemory memory;
    Batch batch;
    std::exception_ptr failure;  // why the batch could not be made
    bool is_ready = false;       // false until the batch of this turn of the ring is made, or has failed
    bool is_filling = false;     // a worker writes into it, maybe for a generation that has ended
  };
  using Row = std::vector<uint32_t>;  // context + 1 tokens
  void produce(std::stop_token stop, Row& row);
  void fill(Slot& slot, int64_t global_sample, Row& row);
  // Fills the slot of the next batch that no worker makes, without the lock. REQUIRES: the lock is held.
  void make_one(std::unique_lock<std::mutex>& lock, Row& row);
  Slot& slot_of(int64_t batch_number) { return slots_[static_cast<size_t>(batch_number) % slots_.size()]; }

  const TokenSource& source_;
  const Sampler sampler_;
  const LoaderConfig config_;
  std::vector<Slot> slots_;
  std::vector<Row> rows_;  // one per worker, at least one
  // Used only by the caller.
  int64_t position_ = 0;
  double last_wait_s_ = 0, total_wait_s_ = 0;
  // Shared, guarded by mutex_. Batches are numbered from the last seek; [taken_, begun_) are ready or being
  // made.
  std::mutex mutex_;
  std::condition_variable_any changed_;
  int64_t generation_ = 0;    // number of seeks so far
  int64_t first_sample_ = 0;  // global sample at which batch 0 of this generation begins
  int64_t begun_ = 0, taken_ = 0;
  bool has_begun_ = false;
  bool is_held_ = false;  // true while the caller holds batch taken_ - 1
  std::vector<std::jthread>
      workers_;  // declared last, so that they are joined before the other members are destroyed
};

// Consecutive windows of T = context tokens over a text. Window w has the inputs [w*T, (w+1)*T) and their
// next tokens as targets, so every token except the first is a target exactly once. Behind the end of the
// text, inputs are 0 and targets are kIgnoreIndex. With several readers, each takes every readers-th
// group of B windows; all readers make the same number of batches, some of which may have no target.
class EvalWindows {
 public:
  // `source` is borrowed. kData error if it has fewer than 2 tokens.
  EvalWindows(const TokenSource& source, const BatchShape& shape, int64_t readers = 1, int64_t reader = 0);

  // Returns the next batch, valid until the next call; null at the end. kData error for an id
  // outside the vocabulary.
  const Batch* next();
  void rewind() { next_round_ = 0; }
  // Ends the pass before this window, or at the end of the text if that comes first.
  void end_at(int64_t window) { end_ = std::min(window, windows()); }

  int64_t windows() const { return (source_.tokens() - 1 + shape_.context - 1) / shape_.context; }
  int64_t batches() const { return (windows() + shape_.batch - 1) / shape_.batch; }  // for a single reader
  int64_t targets() const { return source_.targets(); }

 private:
  const TokenSource& source_;
  const BatchShape shape_;
  const int64_t readers_, reader_;
  int64_t end_;
  BatchMemory memory_;
  std::vector<uint32_t> row_;
  Batch batch_;
  int64_t next_round_ = 0;  // first window of the next round over all readers
};

}  // namespace ingot
