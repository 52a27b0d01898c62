#include "ingot/train/non_finite.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ingot/core/dispatch.h"
#include "ingot/core/staging.h"

namespace ingot {
namespace {

template <typename T>
bool is_finite_range(const T* x, int64_t n) {
  return std::all_of(x, x + n, [](T value) { return std::isfinite(static_cast<float>(value)); });
}

// Checks tensors of f32, bf16 or f16 and any shape.
class Finder {
 public:
  explicit Finder(Stream& stream) : stream_(stream) {}

  bool is_all_finite(const Tensor& t) {
    const Tensor x = staging_.read(t, stream_);
    bool is_finite = true;
    with_dtype(x.dtype, __func__,
               [&]<typename T>() { is_finite = is_finite_range(x.as<T>(), x.elements()); });
    return is_finite;
  }

 private:
  Stream& stream_;
  Staging staging_;
};

std::optional<NonFinitePlace> bad_weight(TrainingStore& params, int unit, Finder& finder) {
  for (const ParamShard& shard : params.shards()) {
    const ParamSpec& spec = params.list()[shard.id];
    if (spec.unit == unit && !finder.is_all_finite(shard.w))
      return NonFinitePlace{layer_name(params.list(), unit), fmt::format("weight {}", spec.name)};
  }
  return std::nullopt;
}

// The residual stream after one half of a unit; residual_stream() lists them in forward order.
struct Residual {
  Tensor x;
  int unit;
  const char* what;
  bool is_overwritten;  // activation checkpointing: another value uses the same memory
};

std::vector<Residual> residual_stream(const Transformer::Saved& saved) {
  const Program& program = *saved.training.program;
  std::vector<Residual> all;
  for (size_t i = 0; i < program.border(); ++i)
    for (const ValueId id : program.ops()[i].out) {
      if (id == kNoValue || program.values()[static_cast<size_t>(id)].role != Role::kStream) continue;
      const Scope& scope = program.values()[static_cast<size_t>(id)].scope;
      if (!all.empty() && scope.unit == 0) all.pop_back();  // the embedding's last value is its output
      const char* what = scope.half == Half::kAttention ? "output of attention"
                         : scope.half == Half::kMlp     ? "output of the MLP"
                                                        : "output of the embedding";
      all.push_back({program.tensor(id, saved.slot), scope.unit, what, !program.is_intact(id)});
    }
  return all;
}

}  // namespace

std::string layer_name(const ParamList& list, int unit) {
  if (unit == 0) return "embedding";
  if (unit == list.units() - 1) return "head";
  return fmt::format("block {}", unit - 1);
}

std::string NonFinite::text() const {
  const char* what = kind == Kind::kLoss       ? "the loss"
                     : kind == Kind::kGradient ? "the gradient"
                                               : "the norm of the gradient";
  const std::string where =
      micro >= 0 ? fmt::format("micro-batch {}", micro) : std::string("the sum of the micro-batches");
  return fmt::format("{} is not finite in {}: {}, {}", what, where, place.layer, place.tensor);
}

std::optional<NonFinitePlace> first_non_finite(TrainingStore& params, const Transformer::Saved& saved,
                                               Stream& stream) {
  Finder finder(stream);
  const ParamList& list = params.list();
  std::optional<NonFinitePlace> found;
  int unseen = -1;  // first unit whose residual was overwritten since the last one that was checked
  const auto look = [&](const Residual& residual) {
    if (!found) found = bad_weight(params, residual.unit, finder);
    if (found) return;
    if (residual.is_overwritten) {
      if (unseen < 0) unseen = residual.unit;
    } else if (finder.is_all_finite(residual.x)) {
      unseen = -1;
    } else {
      const std::string layer = layer_name(list, residual.unit);
      const bool is_known = unseen < 0 || unseen == residual.unit;
      found = {is_known ? layer : fmt::format("{} to {}", layer_name(list, unseen), layer), residual.what};
    }
  };
  for (const Residual& residual : residual_stream(saved)) look(residual);
  const int head = list.units() - 1;
  if (saved.units.end <= head) return found;
  if (!found) found = bad_weight(params, head, finder);
  if (!found && !finder.is_all_finite(saved.in_training.losses))
    found = NonFinitePlace{layer_name(list, head), "losses"};
  return found;
}

std::optional<NonFinitePlace> first_non_finite_gradient(TrainingStore& params, Stream& stream) {
  Finder finder(stream);
  const std::vector<ParamShard> shards = params.shards();
  for (size_t p = shards.size(); p-- > 0;) {
    const ParamSpec& spec = params.list()[shards[p].id];
    if (!finder.is_all_finite(shards[p].grad))
      return NonFinitePlace{layer_name(params.list(), spec.unit), fmt::format("gradient of {}", spec.name)};
  }
  return std::nullopt;
}

NonFinitePlace largest_gradient(TrainingStore& params, Stream& stream) {
  Staging staging;
  NonFinitePlace place;
  float largest = -1;
  for (const ParamShard& shard : params.shards()) {
    const float* g = staging.read(shard.grad, stream).as<float>();
    float here = 0;
    for (int64_t i = 0; i < shard.elements(); ++i) here = std::max(here, std::abs(g[i]));
    if (here <= largest) continue;
    largest = here;
    const ParamSpec& spec = params.list()[shard.id];
    place = {layer_name(params.list(), spec.unit),
             fmt::format("gradient of {} with values to {:.1e}", spec.name, static_cast<double>(here))};
  }
  return place;
}

std::optional<NonFinite> first_of_ranks(const std::optional<NonFinite>& found, Communicator& all) {
  if (all.size() == 1) return found;
  constexpr double kNothing = -std::numeric_limits<double>::infinity();
  const double own = found ? -static_cast<double>(found->micro) : kNothing;
  const double first = all.max(own);
  if (first == kNothing) return std::nullopt;
  const double place = found && found->kind == NonFinite::Kind::kLoss ? -all.rank() : all.rank();
  const int rank = static_cast<int>(std::abs(all.max(own == first ? place : kNothing)));
  NonFinite result = found.value_or(NonFinite{});
  result.kind = static_cast<NonFinite::Kind>(all.broadcast_number(static_cast<int64_t>(result.kind), rank));
  result.micro = all.broadcast_number(result.micro, rank);
  all.broadcast_text(result.place.layer, rank);
  all.broadcast_text(result.place.tensor, rank);
  return result;
}

}  // namespace ingot
