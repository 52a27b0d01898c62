#include "ingot/tasks/scorer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "ingot/core/error.h"
#include "ingot/core/parallel.h"
#include "ingot/infer/log_likelihood.h"

namespace ingot {
void Scorer::score(int64_t index, Row& row) const {
  const std::span<float> logits = engine_.logits(index);
  engine_.model().cap_logits(logits);
  row.log_likelihood = LogLikelihood(logits).of(logits[static_cast<size_t>(row.target)]);
  row.is_greedy = std::ranges::max_element(logits) - logits.begin() == row.target;
}

void Scorer::prepare(Slot& slot, const ScoreRequest& request) {
  const size_t most = std::min(slot.held.size(), request.first - 1);
  const auto [held, wanted] = std::mismatch(
      slot.held.begin(), slot.held.begin() + static_cast<ptrdiff_t>(most), request.tokens.begin());
  slot.held.erase(held, slot.held.end());
}

void Scorer::advance(std::span<const ScoreRequest> requests, std::vector<Score>& scores) {
  struct Taken {
    int64_t slot = 0, count = 0;
  };
  const InferShape& shape = engine_.shape();
  int64_t left = shape.tokens, left_logits = shape.logits;
  std::vector<Taken> taken;
  const auto logits_of = [&](const Slot& slot, int64_t count) {
    const int64_t end = std::ssize(slot.held) + count,
                  first = static_cast<int64_t>(requests[slot.next].first);
    return std::clamp<int64_t>(end - (first - 1), 0, count);
  };
  for (int64_t i = 0; i < shape.slots; ++i) {
    const Slot& slot = slots_[static_cast<size_t>(i)];
    if (slot.next == slot.end) continue;
    int64_t count = std::min(std::ssize(requests[slot.next].tokens) - 1 - std::ssize(slot.held), left);
    count -= std::max<int64_t>(0, logits_of(slot, count) - left_logits);
    if (count == 0) continue;
    taken.push_back({i, count});
    left -= count;
    left_logits -= logits_of(slot, count);
  }
  std::stable_partition(taken.begin(), taken.end(), [](const Taken& t) { return t.count == 1; });
  std::vector<InferSegment> segments;
  std::vector<int32_t> tokens;
  std::vector<Row> rows;
  for (const auto& [index, count] : taken) {
    Slot& slot = slots_[static_cast<size_t>(index)];
    const ScoreRequest& request = requests[slot.next];
    const int64_t first = std::ssize(slot.held), logits = logits_of(slot, count);
    segments.push_back({.slot = index, .first = first, .count = count, .logits = logits});
    const auto begin = request.tokens.begin() + first;
    tokens.insert(tokens.end(), begin, begin + count);
    for (auto target = begin + count - logits; target != begin + count; ++target)
      rows.push_back({.request = slot.next, .target = *(target + 1)});
    slot.held.insert(slot.held.end(), begin, begin + count);
  }
  engine_.run(std::move(segments), tokens);
  parallel_for(std::ssize(rows), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) score(i, rows[static_cast<size_t>(i)]);
  });
  for (const Row& row : rows) {
    scores[row.request].log_likelihood += row.log_likelihood;
    scores[row.request].is_greedy &= row.is_greedy;
  }
}

std::optional<std::vector<Score>> Scorer::run(std::span<const ScoreRequest> requests,
                                              const Progress& progress) {
  std::vector<Score> scores(requests.size());
  int64_t all = 0, done = 0;
  for (const ScoreRequest& request : requests) all += std::ssize(request.tokens) - 1;
  slots_.assign(slots_.size(), {});
  for (size_t next = 0, busy = 0; next < requests.size() || busy > 0;) {
    for (Slot& slot : slots_) {
      if (slot.next < slot.end || next == requests.size()) continue;
      slot.next = next;
      while (next < requests.size() && requests[next].record == requests[slot.next].record) ++next;
      slot.end = next;
      prepare(slot, requests[slot.next]);
      ++busy;
    }
    advance(requests, scores);
    for (Slot& slot : slots_) {
      if (slot.next == slot.end || slot.held.size() + 1 < requests[slot.next].tokens.size()) continue;
      if (!std::isfinite(scores[slot.next].log_likelihood))
        fail(ErrorKind::kNumerics,
             "the likelihood of an answer is {}; try --compute f32, or an earlier checkpoint",
             scores[slot.next].log_likelihood);
      done += std::ssize(slot.held);
      if (++slot.next == slot.end)
        --busy;
      else
        prepare(slot, requests[slot.next]);
    }
    if (progress && !progress(done, all)) return std::nullopt;
  }
  return scores;
}

}  // namespace ingot
