#include "ingot/parallel/coverage.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "ingot/core/error.h"
#include "ingot/core/parallel.h"
#include "ingot/parallel/parallelize.h"
#include "ingot/train/trainer.h"

namespace ingot {
namespace {

// Tells whether rectangles cover a matrix exactly once, without a mark per element. Element (i, j) has the
// weight r(i) c(j) modulo 2^64, where r and c are the differences of a random function, so a rectangle's sum
// is a product of two differences. Other covers have the same sum as the whole only by an accident of about
// 2^-64.
class Cover {
 public:
  void add(std::span<const Rect> rects) {
    for (const Rect& rect : rects) {
      elements_ += rect.elements();
      sum_ += (up_to(rect.row + rect.rows) - up_to(rect.row)) *
              (up_to(rect.column + rect.columns) - up_to(rect.column));
    }
  }
  bool is_once(const Shape& full) const {
    const int64_t columns = full.rank() == 2 ? full[1] : 1;
    return sum_ == (up_to(full[0]) - up_to(0)) * (up_to(columns) - up_to(0));
  }
  int64_t elements() const { return elements_; }

 private:
  // Returns the sum of the weights of the first n rows or columns, and a constant: splitmix64.
  static uint64_t up_to(int64_t n) {
    uint64_t z = static_cast<uint64_t>(n + 1) * 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  uint64_t sum_ = 0;
  int64_t elements_ = 0;
};

void require_once(const Cover& cover, const ParamSpec& spec, const char* what) {
  if (cover.is_once(spec.full_shape())) return;
  fail(ErrorKind::kInternal, "coverage: {} of the {} elements of {} are {}, or some of them twice",
       cover.elements(), spec.full_shape().elements(), spec.name, what);
}

// The elements that the members of each group have.
class Agreement {
 public:
  explicit Agreement(std::string group) : group_(std::move(group)) {}
  void add(const std::array<int, 4>& member_of, const ParamSpec& spec, int rank,
           const std::vector<Rect>& rects) {
    const auto [at, is_first] = known_.try_emplace(member_of, rank, rects);
    if (is_first || at->second.second == rects) return;
    fail(ErrorKind::kInternal, "coverage: ranks {} and {} are {}, but have different elements of {}",
         at->second.first, rank, group_, spec.name);
  }

 private:
  std::string group_;
  std::map<std::array<int, 4>, std::pair<int, std::vector<Rect>>> known_;
};

// A group whose name says which ranks are in it.
class NamedGroup final : public PlannedCommunicator {
 public:
  using PlannedCommunicator::PlannedCommunicator;
  std::unique_ptr<Communicator> split(int color, int /*key*/, std::string name) override {
    return std::make_unique<NamedGroup>(fmt::format("{} {} of {}", name, color, this->name()), rank(),
                                        size());
  }
};

Mesh::MakeGroup named_groups(const MeshShape& shape, int rank) {
  return [shape, rank](const std::string& name, int own, int size) {
    const std::span<const MeshGroup> groups = mesh_groups();
    const auto group =
        std::ranges::find_if(groups, [&](const MeshGroup& candidate) { return name == candidate.name; });
    const int first = group_ranks(shape, rank, group->axes).front();
    return std::make_unique<NamedGroup>(fmt::format("{} of rank {}", name, first), own, size);
  };
}

using Ranks = std::vector<int>;

std::string text_of(const Ranks& ranks) {
  std::string text = fmt::format("{} ranks:", ranks.size());
  for (size_t i = 0; i < std::min<size_t>(ranks.size(), 4); ++i) text += fmt::format(" {}", ranks[i]);
  return ranks.size() > 4 ? text + " ..." : text;
}

// Compares the groups over which ranks sum gradients with the ranks that compute terms of them. The members
// of a group are known when every rank has been added.
class SumCheck {
 public:
  struct Terms {
    Ranks ranks;
    Range elements;  // of a shard
  };

  void add_member(const std::string& group, int rank) { members_[group].insert(rank); }
  void add(const HeldShard& held, const ParamSpec& spec, const std::vector<Terms>& terms) {
    Case found;
    for (const SummedElements& sum : held.sums) {
      add_member(sum.group, held.rank);
      found.first.emplace_back(sum.group, sum.elements.begin, sum.elements.end);
    }
    for (const Terms& term : terms)
      found.second.emplace_back(term.ranks, term.elements.begin, term.elements.end);
    cases_.try_emplace(std::move(found), held.rank, spec.name);
  }

  void run() const {
    for (const auto& [found, where] : cases_) {
      const auto& [summed, terms] = found;
      std::multiset<std::tuple<Ranks, int64_t, int64_t>> sums;
      for (const auto& [group, begin, end] : summed) {
        const std::set<int>& members = members_.at(group);
        sums.emplace(Ranks(members.begin(), members.end()), begin, end);
      }
      for (const auto& term : terms) {
        const auto& [ranks, begin, end] = term;
        if (const auto at = sums.find(term); at != sums.end())
          sums.erase(at);
        else
          fail(ErrorKind::kInternal,
               "coverage: {} compute terms of the gradient of {}, which rank {} does not sum over them",
               text_of(ranks), where.second, where.first);
      }
      if (!sums.empty())
        fail(ErrorKind::kInternal,
             "coverage: rank {} sums the gradient of {} over {}, which do not compute terms of it, or once "
             "too often",
             where.first, where.second, text_of(std::get<0>(*sums.begin())));
    }
  }

 private:
  using Sums = std::vector<std::tuple<std::string, int64_t, int64_t>>;  // group, elements
  using TermsOf = std::vector<std::tuple<Ranks, int64_t, int64_t>>;
  using Case = std::pair<Sums, TermsOf>;
  std::map<std::string, std::set<int>> members_;
  std::map<Case, std::pair<int, std::string>> cases_;  // a rank and a parameter of each
};

// Returns the sums that a store makes of a shard's gradients.
std::vector<SummedElements> sums_of(const ParamShard& shard, const std::vector<GradientSum>& sums) {
  std::vector<SummedElements> found;
  const float* const own = shard.grad.as<float>();
  for (const GradientSum& sum : sums) {
    const float* const first = sum.memory.as<float>();
    const int64_t begin = std::max<int64_t>(first - own, 0),
                  end = std::min(first - own + sum.memory.elements(), shard.elements());
    if (begin < end) found.push_back({sum.group, {begin, end}});
  }
  return found;
}

// The update of a matrix sees the logical matrix with its fused matrices whole, and where the shard lies in
// it.
void check_update(const OptimParam& update, const ParamSpec& spec, int rank, const std::vector<Rect>& rects) {
  int64_t fused = 0;
  for (const int64_t rows : spec.fused_rows) fused += rows;
  const bool are_whole =
      update.fused_rows == spec.fused_rows && (fused == 0 || fused == spec.full_shape()[0]);
  const bool is_here = !update.is_shard() || update.rects == rects;
  if (update.whole() != spec.full_shape() || !are_whole || !is_here)
    fail(ErrorKind::kInternal,
         "coverage: the update of rank {} sees {} as {} matrices of {} elements together{}", rank, spec.name,
         std::max<size_t>(update.fused_rows.size(), 1), update.whole_elements(),
         is_here ? "" : ", and its shard elsewhere in them");
}

class Coverage {
 public:
  explicit Coverage(const RunConfig& config) : shape_(mesh_shape(config.parallel)) {}

  void add(const Layout& layout, const StagePlan& plan, const std::function<void(HeldShard&)>& change) {
    TrainingStore& store = *layout.params;
    if (specs_.empty()) {
      specs_ = store.list().specs();
      covers_.resize(specs_.size());
    }
    const int rank = rank_at(shape_, layout.mesh->place);
    const std::vector<GradientSum> sums = store.sums();
    for (const GradientSum& sum : sums) sums_.add_member(sum.group, rank);
    const std::vector<OptimParam> updates = optimizer_params(store, 0, layout.model->tp());
    const std::vector<ParamShard> shards = store.shards();
    for (size_t i = 0; i < shards.size(); ++i) {
      HeldShard held{.rank = rank,
                     .shard = shards[i],
                     .written = store.written(shards[i]),
                     .update = updates[i],
                     .sums = sums_of(shards[i], sums)};
      if (change) change(held);
      add_shard(held, layout, plan);
    }
  }

  void run() const {
    for (size_t id = 0; id < specs_.size(); ++id) {
      if (!specs_[id].is_trained) continue;
      require_once(covers_[id].counted, specs_[id], "counted in the norm of the gradient");
      require_once(covers_[id].written, specs_[id], "written to a checkpoint");
      for (const auto& [place, cover] : covers_[id].updated)
        require_once(cover, specs_[id], "updated by the ranks that do it together");
    }
    sums_.run();
  }

 private:
  struct Covers {
    Cover counted, written;
    std::map<std::pair<int, int>, Cover> updated;  // by stage and replica
  };

  void add_shard(const HeldShard& held, const Layout& layout, const StagePlan& plan) {
    const ParamShard& shard = held.shard;
    const ParamSpec& spec = layout.params->list()[shard.id];
    const MeshPlace& place = layout.mesh->place;
    const TensorParallel& tp = layout.model->tp();
    Covers& covers = covers_[static_cast<size_t>(shard.id)];
    const int64_t own_end = shard.end - spec.copies(shard.begin, shard.end);
    if (shard.contributes_to_norm && place.replica == 0)  // replicas have equal norms
      covers.counted.add(rects_of(spec, shard.begin, own_end));
    covers.written.add(rects_of(spec, shard.begin + held.written.begin, shard.begin + held.written.end));
    const std::vector<Rect> rects = rects_of(spec, shard.begin, shard.end);
    replicas_.add({shard.id, place.stage, place.shard, place.tp_rank}, spec, held.rank, rects);
    const bool is_tied = plan.is_shared(spec.unit) && (place.stage == 0 || place.stage + 1 == shape_.pp);
    if (is_tied) ends_.add({shard.id, place.shard, place.tp_rank, 0}, spec, held.rank, rects);
    const int holders = tp.holders(layout.model->config().kv_heads, 1);
    const Range common{std::min(std::max(shard.begin, spec.elements() - spec.common_elements()), shard.end),
                       shard.end};
    if (spec.slice.common_rows > 0)
      heads_.add({shard.id, place.stage, place.shard, tp.rank / holders}, spec, held.rank,
                 rects_of(spec, common.begin, common.end));
    if (shard.elements() == 0) return;
    check_update(held.update, spec, held.rank, rects);
    if (held.update.is_added)
      covers.updated[{place.stage, place.replica}].add(rects_of(spec, shard.begin, own_end));
    sums_.add(held, spec, terms(held, place, is_tied, holders, common));
  }

  // Returns the ranks that compute terms of a shard's gradient, by axis.
  std::vector<SumCheck::Terms> terms(const HeldShard& held, const MeshPlace& place, bool is_tied, int holders,
                                     const Range& common) const {
    std::vector<SumCheck::Terms> terms;
    const Range all{0, held.shard.elements()};
    const auto sorted = [](Ranks ranks) {
      std::ranges::sort(ranks);
      return ranks;
    };
    if (shape_.dp_shard > 1) terms.push_back({sorted(group_ranks(shape_, held.rank, {.shard = true})), all});
    if (shape_.dp_replicate > 1)
      terms.push_back({sorted(group_ranks(shape_, held.rank, {.replicate = true})), all});
    if (holders > 1 && common.begin < common.end) {
      Ranks ranks;
      MeshPlace other = place;
      for (int i = 0; i < holders; ++i) {
        other.tp_rank = place.tp_rank / holders * holders + i;
        ranks.push_back(rank_at(shape_, other));
      }
      terms.push_back(
          {sorted(std::move(ranks)), {common.begin - held.shard.begin, common.end - held.shard.begin}});
    }
    if (is_tied) {
      MeshPlace other = place;
      other.stage = shape_.pp - 1 - place.stage;
      terms.push_back({sorted({held.rank, rank_at(shape_, other)}), all});
    }
    return terms;
  }

  MeshShape shape_;
  std::vector<ParamSpec> specs_;
  std::vector<Covers> covers_;
  Agreement replicas_{"replicas"}, heads_{"ranks of one kv-head"}, ends_{"the ends of a pipeline"};
  SumCheck sums_;
};

}  // namespace

void check_coverage(const RunConfig& config, const std::function<void(HeldShard&)>& change) {
  Coverage coverage(config);
  const MeshShape shape = mesh_shape(config.parallel);
  for_each_planned_store(
      config, [&](int rank) { return named_groups(shape, rank); },
      [&](const Layout& layout, const StagePlan& plan) { coverage.add(layout, plan, change); });
  coverage.run();
}

}  // namespace ingot
