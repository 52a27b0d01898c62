#include "ingot/train/state_hash.h"

#include <fmt/core.h>

#include <array>
#include <map>
#include <utility>

#include "ingot/core/memory_hash.h"
#include "ingot/train/non_finite.h"

namespace ingot {
namespace {

// Collects tensors into one hash per unit and kind.
class Collector {
 public:
  Collector(Staging& staging, Stream& stream) : staging_(staging), stream_(stream) {}

  // place: numbers that tell which elements the tensor holds.
  void add(int unit, StateHash::What what, const std::array<int64_t, 3>& place, const Tensor& tensor) {
    if (!tensor || tensor.elements() == 0) return;
    StateHash& sum = sums_[{unit, what}];
    const Tensor numbers = staging_.read(tensor, stream_);
    // Multiplying by an odd number loses nothing, so every tensor still counts in full.
    constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
    for (const int64_t number : place) sum.key = sum.key * kOdd + static_cast<uint64_t>(number) + 1;
    sum.hash = sum.hash * kOdd + memory_hash({static_cast<const std::byte*>(numbers.data), numbers.bytes()});
  }
  std::vector<StateHash> take() {
    std::vector<StateHash> all;
    for (const auto& [place, sum] : sums_)
      all.push_back({.unit = place.first, .what = place.second, .key = sum.key, .hash = sum.hash});
    return all;
  }

 private:
  Staging& staging_;
  Stream& stream_;
  std::map<std::pair<int, StateHash::What>, StateHash> sums_;
};

}  // namespace

std::string StateHash::text(const ParamList& list) const {
  constexpr std::array<const char*, 5> kNames = {"weights", "copies of the weights", "optimizer state",
                                                 "optimizer state", "gradients"};
  return fmt::format("the {} of {}", kNames[static_cast<size_t>(what)], layer_name(list, unit));
}

std::vector<StateHash> hash_state(Trainer& trainer, Staging& staging) {
  using enum StateHash::What;
  const ParamList& list = trainer.params().list();
  Collector sums(staging, *trainer.layout().stream);
  for (const ParamShard& shard : trainer.params().shards()) {
    const std::array<int64_t, 3> place{shard.id, shard.begin, shard.end};
    const int unit = list[shard.id].unit;
    sums.add(unit, kWeights, place, shard.w);
    sums.add(unit, kWeights, place, shard.tail);
    sums.add(unit, kCopies, place, shard.compute);
  }
  const std::vector<Optimizer::State>& states = trainer.state().optimizer.states();
  for (size_t i = 0; i < states.size(); ++i) {
    const Optimizer::State& state = states[i];
    sums.add(list[state.param].unit, state.scope == Optimizer::ReplicaScope::kReplicas ? kOptimizer : kOwned,
             {static_cast<int64_t>(i), state.begin, state.tensor.elements()}, state.tensor);
  }
  return sums.take();
}

std::vector<StateHash> hash_gradients(Trainer& trainer, Staging& staging) {
  Collector sums(staging, *trainer.layout().stream);
  for (const ParamShard& shard : trainer.params().shards())
    sums.add(trainer.params().list()[shard.id].unit, StateHash::What::kGradients,
             {shard.id, shard.begin, shard.end}, shard.grad);
  return sums.take();
}

}  // namespace ingot
