#include "ingot/data/loader.h"

#include <algorithm>
#include <chrono>

#include "ingot/core/error.h"

namespace ingot {
namespace {

// Allocates the memory of one batch and returns views of it.
Batch allocate(const BatchShape& shape, bool has_pairs, BatchMemory& memory) {
  const auto elements = static_cast<size_t>(shape.batch * shape.context);
  memory.tokens.assign(elements, 0);
  memory.targets.assign(elements, kIgnoreIndex);
  if (shape.document_mask) memory.doc_start.assign(elements, 0);
  if (has_pairs) memory.reference.assign(elements, 0);
  const Shape bt = {shape.batch, shape.context};
  Batch batch;
  batch.tokens = Tensor(memory.tokens.data(), DType::i32, bt);
  batch.targets = Tensor(memory.targets.data(), DType::i32, bt);
  if (shape.document_mask) batch.doc_start = Tensor(memory.doc_start.data(), DType::i32, bt);
  if (has_pairs) batch.reference = Tensor(memory.reference.data(), DType::f32, bt);
  return batch;
}

void check_ids(const TokenSource& source, int64_t begin, std::span<const uint32_t> row, int64_t vocab_size) {
  const uint32_t highest = *std::max_element(row.begin(), row.end());
  if (highest < vocab_size) return;
  const auto bad =
      std::find_if(row.begin(), row.end(), [&](uint32_t id) { return id >= vocab_size; }) - row.begin();
  fail(ErrorKind::kData,
       "{}: id {} is outside the vocabulary of {} ids; use the tokenizer that made this data",
       source.place(begin + bad), row[static_cast<size_t>(bad)], vocab_size);
}

// Fills row b of the batch with the window at `begin`; the positions beyond the end of the stream are padded.
void fill_row(const TokenSource& source, int64_t begin, const BatchShape& shape, std::vector<uint32_t>& row,
              Batch& batch, int64_t b) {
  const int64_t read = std::clamp<int64_t>(source.tokens() - begin, 0, shape.context + 1);
  const int64_t counted = std::max<int64_t>(read - 1, 0);
  int32_t* tokens = batch.tokens.as<int32_t>() + b * shape.context;
  int32_t* targets = batch.targets.as<int32_t>() + b * shape.context;
  const std::span<uint32_t> window(row.data(), static_cast<size_t>(counted == 0 ? 0 : read));
  if (counted > 0) {
    source.read(begin, window);
    check_ids(source, begin, window, shape.vocab_size);
  }
  for (int64_t t = 0; t < counted; ++t) {
    tokens[t] = static_cast<int32_t>(window[static_cast<size_t>(t)]);
    targets[t] = static_cast<int32_t>(window[static_cast<size_t>(t + 1)]);
  }
  std::fill(tokens + counted, tokens + shape.context, 0);
  std::fill(targets + counted, targets + shape.context, kIgnoreIndex);
  batch.counted_targets += source.mask_targets(begin + 1, {targets, static_cast<size_t>(counted)});
  if (!shape.document_mask) return;
  int32_t* doc_start = batch.doc_start.as<int32_t>() + b * shape.context;
  source.mark_documents(begin, window, {doc_start, static_cast<size_t>(counted)});
  std::fill(doc_start + counted, doc_start + shape.context,
            static_cast<int32_t>(counted));  // padding is a document of its own
  if (!batch.reference) return;
  float* reference = batch.reference.as<float>() + b * shape.context;
  source.read_references(begin, {doc_start, static_cast<size_t>(counted)},
                         {reference, static_cast<size_t>(counted)});
  std::fill(reference + counted, reference + shape.context, 0.0f);
}

}  // namespace

void BatchShape::validate() const {
  if (batch < 1) fail(ErrorKind::kUsage, "batch size must be at least 1, got {}", batch);
  if (context < 1) fail(ErrorKind::kUsage, "context must be at least 1, got {}", context);
  if (vocab_size < 1 || vocab_size > INT32_MAX)
    fail(ErrorKind::kUsage, "vocabulary size must be from 1 to {}, got {}", INT32_MAX, vocab_size);
}

void LoaderConfig::validate() const {
  shape.validate();
  if (readers < 1 || reader < 0 || reader >= readers)
    fail(ErrorKind::kUsage, "reader must be from 0 to readers - 1, got {} of {}", reader, readers);
  if (workers < 0) fail(ErrorKind::kUsage, "the number of workers must not be negative, got {}", workers);
  if (prefetch < 1) fail(ErrorKind::kUsage, "each worker must make at least 1 batch ahead, got {}", prefetch);
}

Loader::Loader(const TokenSource& source, const Sampler& sampler, const LoaderConfig& config)
    : source_(source), sampler_(sampler), config_(config) {
  config.validate();
  const BatchShape& shape = config_.shape;
  INGOT_CHECK(sampler.context() == shape.context, "Loader: sampler's context is {}, the batch's {}",
              sampler.context(), shape.context);
  slots_.resize(static_cast<size_t>(config_.ring()));
  for (Slot& slot : slots_) slot.batch = allocate(shape, source.references() != nullptr, slot.memory);
  rows_.resize(static_cast<size_t>(std::max<int64_t>(1, config_.workers)),
               Row(static_cast<size_t>(shape.context + 1)));
  for (int64_t i = 0; i < config_.workers; ++i)
    workers_.emplace_back([this, &row = rows_[static_cast<size_t>(i)]](std::stop_token stop) {
      produce(std::move(stop), row);
    });
}

Loader::~Loader() {
  for (std::jthread& worker : workers_) worker.request_stop();  // all of them, before the first is joined
}

void Loader::fill(Slot& slot, int64_t global_sample, Row& row) {
  Batch& batch = slot.batch;
  batch.first_sample = global_sample + config_.reader * config_.shape.batch;
  batch.counted_targets = 0;
  for (int64_t b = 0; b < config_.shape.batch; ++b)
    fill_row(source_, sampler_.start(batch.first_sample + b), config_.shape, row, batch, b);
}

void Loader::make_one(std::unique_lock<std::mutex>& lock, Row& row) {
  const int64_t generation = generation_, number = begun_++;
  const int64_t global_sample = first_sample_ + number * config_.shape.batch * config_.readers;
  Slot& slot = slot_of(number);
  slot.is_filling = true;
  slot.is_ready = false;
  std::exception_ptr failure;
  lock.unlock();
  try {
    fill(slot, global_sample, row);
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  slot.is_filling = false;
  slot.failure = failure;
  slot.is_ready = generation == generation_;  // otherwise a seek() came in between, and the batch is outdated
}

void Loader::produce(std::stop_token stop, Row& row) {
  std::unique_lock lock(mutex_);
  const auto has_work = [&] {
    return has_begun_ && begun_ - (taken_ - (is_held_ ? 1 : 0)) < std::ssize(slots_) &&
           !slot_of(begun_).is_filling;
  };
  while (changed_.wait(lock, stop, has_work)) {
    make_one(lock, row);
    changed_.notify_all();
  }
}

const Batch& Loader::next() {
  std::unique_lock lock(mutex_);
  has_begun_ = true;
  is_held_ = false;
  changed_.notify_all();
  last_wait_s_ = 0;
  Slot& slot = slot_of(taken_);
  const auto is_made = [&] { return taken_ < begun_ && slot.is_ready; };
  if (!is_made()) {
    const auto begin = std::chrono::steady_clock::now();
    if (workers_.empty())
      make_one(lock, rows_.front());
    else
      changed_.wait(lock, is_made);
    last_wait_s_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    total_wait_s_ += last_wait_s_;
  }
  if (slot.failure) std::rethrow_exception(slot.failure);
  is_held_ = true;
  position_ += config_.shape.batch * config_.readers;
  ++taken_;
  return slot.batch;
}

void Loader::seek(int64_t global_sample) {
  const int64_t stride = config_.shape.batch * config_.readers;
  INGOT_CHECK(global_sample >= 0 && global_sample % stride == 0,
              "Loader::seek: sample must be a multiple of batch * readers = {}, got {}", stride,
              global_sample);
  const std::lock_guard lock(mutex_);
  ++generation_;
  first_sample_ = position_ = global_sample;
  begun_ = taken_ = 0;
  has_begun_ = true;
  is_held_ = false;
  for (Slot& slot : slots_) slot.is_ready = false;
  changed_.notify_all();
}

EvalWindows::EvalWindows(const TokenSource& source, const BatchShape& shape, int64_t readers, int64_t reader)
    : source_(source), shape_(shape), readers_(readers), reader_(reader), end_(windows()) {
  shape.validate();
  if (source.tokens() < 2)
    fail(ErrorKind::kData, "the text to evaluate has {} tokens, at least 2 are needed; give more text",
         source.tokens());
  batch_ = allocate(shape_, source.references() != nullptr, memory_);
  row_.resize(static_cast<size_t>(shape.context + 1));
}

const Batch* EvalWindows::next() {
  if (next_round_ >= end_) return nullptr;
  batch_.first_sample = next_round_ + reader_ * shape_.batch;
  batch_.counted_targets = 0;
  for (int64_t b = 0; b < shape_.batch; ++b) {
    const int64_t window = batch_.first_sample + b;
    const int64_t begin = window < end_ ? window * shape_.context : source_.tokens();  // or all padding
    fill_row(source_, begin, shape_, row_, batch_, b);
  }
  next_round_ += shape_.batch * readers_;
  return &batch_;
}

}  // namespace ingot
