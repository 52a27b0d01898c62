#include "ingot/api/api_engine.h"

#include <algorithm>
#include <utility>

#include "ingot/core/error.h"

namespace ingot {

ApiEngine::ApiEngine(ServedModel& served, int64_t slots) {
  const GeneratorShape shape{.slots = slots, .has_scores = true};
  const InferBytes bytes = Generator::planned_bytes(served.model(), shape, served.stream().device);
  served.make_ready(bytes.host, bytes.device, "keys and values of all --slots");
  generator_.emplace(served.model(), served.params(), region_, served.stream(), shape);
  generator_->limit_ids(served.tokenizer().vocab_size());
  generator_->keep_caches();
}

void ApiEngine::add(std::shared_ptr<Completion> completion) {
  const std::lock_guard lock(mutex_);
  arrived_.push_back(std::move(completion));
  has_come_.notify_one();
}

void ApiEngine::stop() noexcept {
  const std::lock_guard lock(mutex_);
  is_stopped_ = true;
  has_come_.notify_one();
}

ApiEngine::Load ApiEngine::load() const {
  const std::lock_guard lock(mutex_);
  Load load = load_;
  for (const auto& completion : arrived_) load.waiting += completion->choices();
  return load;
}

bool ApiEngine::take_arrived() {
  std::unique_lock lock(mutex_);
  const bool has_work = !waiting_.empty() || !running_.empty();
  has_come_.wait(lock, [&] { return is_stopped_ || has_work || !arrived_.empty(); });
  for (auto& completion : std::exchange(arrived_, {})) waiting_.push_back({std::move(completion)});
  return !is_stopped_;
}

void ApiEngine::drop_ended() {
  const auto is_ended = [](const std::shared_ptr<Completion>& completion) {
    if (completion->age_s() > kLimit_s) completion->fail(503, "the answer took too long; ask for less");
    return completion->is_over() || completion->is_abandoned();
  };
  std::erase_if(waiting_, [&](const Waiting& one) { return is_ended(one.completion); });
  std::erase_if(running_, [&](const auto& one) {
    if (!is_ended(one.second.completion)) return false;
    generator_->end(one.first);
    return true;
  });
}

void ApiEngine::fill_slots() {
  while (!generator_->is_full() && !waiting_.empty()) {
    Waiting first = std::move(waiting_.front());
    waiting_.pop_front();
    const SequenceRequest sequence = first.completion->sequence(first.next);
    try {
      generator_->check(sequence);
    } catch (const Error& error) {
      first.completion->fail(400, error.what());
      continue;
    }
    running_[generator_->start(sequence)] = {first.completion, first.next};
    if (++first.next < first.completion->choices()) waiting_.push_back(std::move(first));
  }
}

void ApiEngine::step() {
  if (generator_->is_idle()) return;
  const auto take = [&](const SequenceToken& token) {
    const Running& running = running_.at(token.sequence);
    return running.completion->take(running.choice, token);
  };
  const auto end = [&](size_t sequence) {
    const Running running = running_.extract(sequence).mapped();
    running.completion->end(running.choice);
  };
  try {
    generator_->step(take, end);
  } catch (const Error& error) {  // logits that are not finite
    for (const auto& [sequence, running] : running_) running.completion->fail(500, error.what());
  }
}

void ApiEngine::note_load() {
  Load load{.waiting = 0, .running = running_.size()};
  for (const Waiting& one : waiting_) load.waiting += one.completion->choices() - one.next;
  const std::lock_guard lock(mutex_);
  load_ = load;
}

void ApiEngine::run(const std::function<void()>& notify) {
  while (take_arrived()) {
    drop_ended();
    fill_slots();
    step();
    note_load();
    notify();
  }
}

}  // namespace ingot
