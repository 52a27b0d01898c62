#include "ingot/run/state_watch.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <utility>

namespace ingot {
namespace {

// A hash as it travels between ranks: the rank in the world, unit, kind, key and hash.
constexpr int64_t kNumbers = 5;

int64_t number(uint64_t bits) { return std::bit_cast<int64_t>(bits); }

std::string join(const std::vector<int64_t>& ranks) {
  std::string text;
  for (const int64_t rank : ranks) text += fmt::format("{}{}", text.empty() ? "" : ", ", rank);
  return text;
}

}  // namespace

// Returns the texts of all ranks that have one, in order of the ranks; every rank gets the same.
std::string StateWatch::agree_on(const std::string& own) {
  std::string all;
  double first = own.empty() ? -1 : static_cast<double>(world_.size() - world_.rank());
  first = world_.max(first);  // the lowest rank that has a text
  if (first < 0) return all;
  all = own;
  world_.broadcast_text(all, world_.size() - static_cast<int>(first));
  return all;
}

std::string StateWatch::own_difference(const std::vector<StateHash>& before,
                                       const std::vector<StateHash>& now, const char* how) const {
  for (size_t i = 0; i < std::min(before.size(), now.size()); ++i)
    if (before[i] != now[i])
      return fmt::format("{} {} rank {}", now[i].text(trainer_.params().list()), how, world_.rank());
  return "";
}

std::string StateWatch::difference_of_replicas(const std::vector<StateHash>& own) const {
  Communicator& group = replicas();
  const auto most = static_cast<int64_t>(group.max(static_cast<double>(own.size())));
  std::vector<int64_t> mine(static_cast<size_t>(most * kNumbers), -1);
  for (size_t i = 0; i < own.size(); ++i) {
    int64_t* row = &mine[i * kNumbers];
    row[0] = world_.rank();
    row[1] = own[i].unit;
    row[2] = static_cast<int64_t>(own[i].what);
    row[3] = number(own[i].key);
    row[4] = number(own[i].hash);
  }
  std::vector<int64_t> all(mine.size() * static_cast<size_t>(group.size()));
  group.all_gather_into("state hashes", Tensor(all.data(), DType::i64, {std::ssize(all)}),
                        Tensor(mine.data(), DType::i64, {std::ssize(mine)}));
  struct Part {
    StateHash part;
    std::map<int64_t, std::vector<int64_t>> ranks;  // by hash
  };
  std::map<std::array<int64_t, 3>, Part> parts;
  for (size_t i = 0; i < all.size(); i += kNumbers) {
    if (all[i] < 0) continue;
    Part& part = parts[{all[i + 1], all[i + 2], all[i + 3]}];
    part.part.unit = static_cast<int>(all[i + 1]);
    part.part.what = static_cast<StateHash::What>(all[i + 2]);
    part.ranks[all[i + 4]].push_back(all[i]);
  }
  for (const auto& [place, part] : parts) {
    if (part.ranks.size() < 2) continue;
    const std::string what = part.part.text(trainer_.params().list());
    const auto largest =
        std::ranges::max_element(part.ranks, {}, [](const auto& ranks) { return ranks.second.size(); });
    size_t count = 0;
    std::vector<int64_t> others, everyone;
    for (const auto& [hash, ranks] : part.ranks) {
      count += ranks.size();
      everyone.insert(everyone.end(), ranks.begin(), ranks.end());
      if (hash != largest->first) others.insert(others.end(), ranks.begin(), ranks.end());
    }
    std::ranges::sort(others);
    std::ranges::sort(everyone);
    if (2 * largest->second.size() > count)
      return fmt::format("{} in the memory of rank {} differ from those of {} replicas", what, join(others),
                         largest->second.size());
    return fmt::format("{} differ between the replicas on ranks {}", what, join(everyone));
  }
  return "";
}

std::optional<std::string> StateWatch::look(bool is_saving) {
  const int64_t step = trainer_.state().steps_done, every = guard_.replica_hash_every;
  const bool is_due = every > 0 && step > 0 && step % every == 0;
  const bool compares = has_replicas() && (is_saving || is_due);
  if (!compares && !last_) return std::nullopt;
  const std::vector<StateHash> now = hash_state(trainer_, staging_);
  std::string found = last_ ? agree_on(own_difference(*last_, now, "changed in the memory of")) : "";
  if (found.empty() && compares) {
    found = agree_on(difference_of_replicas(now));
    if (!found.empty()) suspicion_ = Suspicion{.step = step, .hashes = now};
  }
  if (found.empty()) return std::nullopt;
  return found;
}

void StateWatch::state_changed() {
  if (guard_.watches_memory) last_ = hash_state(trainer_, staging_);
}

std::string StateWatch::verdict() {
  if (!suspicion_ || trainer_.state().steps_done != suspicion_->step) return "";
  const std::vector<StateHash> before = std::move(suspicion_->hashes);
  suspicion_.reset();
  const std::string own = own_difference(before, hash_state(trainer_, staging_), "were others on");
  std::vector<double> wrong(static_cast<size_t>(world_.size()), 0);
  if (!own.empty()) wrong[static_cast<size_t>(world_.rank())] = 1;
  world_.max(wrong);
  std::vector<int64_t> ranks;
  for (size_t rank = 0; rank < wrong.size(); ++rank)
    if (wrong[rank] > 0) ranks.push_back(static_cast<int64_t>(rank));
  if (ranks.empty()) return "";
  if (ranks.size() > 1)
    return fmt::format(
        "computed again, the state shows that ranks {} were wrong: the gradients of one had reached the "
        "others; "
        "guard.replica_hash_every=1 or guard.memory_watch would name it",
        join(ranks));
  return fmt::format("computed again, the state shows that rank {} was wrong: {} then", join(ranks),
                     agree_on(own));
}

bool StateWatch::is_verified(int64_t steps) const {
  const int64_t every = guard_.verify_every;
  return every > 0 && (steps + 1) % every == 0;
}

void StateWatch::keep_gradients(double loss) {
  gradients_ = hash_gradients(trainer_, staging_);
  loss_ = loss;
}

bool StateWatch::has_same_gradients(double loss, std::string& difference) {
  std::string own = own_difference(gradients_, hash_gradients(trainer_, staging_), "changed on");
  if (own.empty() && std::bit_cast<uint64_t>(loss) != std::bit_cast<uint64_t>(loss_))
    own = fmt::format("the loss changed on rank {}", world_.rank());
  difference = agree_on(own);
  return difference.empty();
}

}  // namespace ingot
