#include "ingot/parallel/coverage.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <vector>

#include "ingot/core/error.h"
#include "ingot/core/parallel.h"
#include "ingot/parallel/parallelize.h"

namespace ingot {
namespace {

// Tells whether rectangles cover a matrix exactly once, without a mark per element. Element (i, j) has the random weight
// r(i) c(j) modulo 2^64, of which a rectangle's sum is a product of two differences. Other covers have the same sum as the whole
// only by an accident of about 2^-64.
class Cover {
 public:
  void add(const Rect& rect) {
    elements_ += rect.elements();
    sum_ += (up_to(rect.row + rect.rows) - up_to(rect.row)) *
            (up_to(rect.column + rect.columns) - up_to(rect.column));
  }
  bool is_once(int64_t rows, int64_t columns) const { return sum_ == up_to(rows) * up_to(columns); }
  int64_t elements() const { return elements_; }

 private:
  // Returns the sum of the weights of the first n rows or columns.
  static uint64_t up_to(int64_t n) {
    static std::vector<uint64_t> sums{0};
    while (static_cast<int64_t>(sums.size()) <= n) {
      uint64_t z = sums.size() * 0x9e3779b97f4a7c15;  // splitmix64
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
      z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
      sums.push_back(sums.back() + (z ^ (z >> 31)));
    }
    return sums[static_cast<size_t>(n)];
  }

  uint64_t sum_ = 0;
  int64_t elements_ = 0;
};

struct Covers {
  Cover counted, written;
};

// The elements that the members of each group have.
class Agreement {
 public:
  explicit Agreement(std::string group) : group_(std::move(group)) {}
  void add(const std::array<int, 4>& member_of, const ParamSpec& spec, int rank, std::vector<Rect> rects) {
    const auto [at, is_first] = known_.try_emplace(member_of, rank, rects);
    if (is_first || at->second.second == rects) return;
    fail(ErrorKind::kInternal, "coverage: ranks {} and {} are {}, but have different elements of {}",
         at->second.first, rank, group_, spec.name);
  }

 private:
  std::string group_;
  std::map<std::array<int, 4>, std::pair<int, std::vector<Rect>>> known_;
};

void add(Cover& cover, const ParamSpec& spec, int64_t begin, int64_t end) {
  for (const Rect& rect : rects_of(spec, begin, end)) cover.add(rect);
}

void require_once(const Cover& cover, const ParamSpec& spec, const char* what) {
  const Shape& full = spec.full_shape();
  if (cover.is_once(full[0], spec.is_vector() ? 1 : full[1])) return;
  fail(ErrorKind::kInternal, "coverage: {} of the {} elements of {} are {}, or some of them twice",
       cover.elements(), full.elements(), spec.name, what);
}

}  // namespace

void check_coverage(const RunConfig& config, const std::function<void(HeldShard&)>& change) {
  const MeshShape shape = mesh_shape(config.parallel);
  std::vector<Covers> covers;
  std::vector<ParamSpec> specs;
  Agreement replicas("replicas"), heads("ranks of one kv-head"), ends("the ends of a pipeline");
  for_each_planned_store(config, [&](const Layout& layout, const StagePlan& plan) {
    TrainingStore& store = *layout.params;
    const MeshPlace& place = layout.mesh->place;
    const TensorParallel& tp = layout.model->tp();
    if (specs.empty()) {
      specs = store.list().specs();
      covers.resize(specs.size());
    }
    const int holders = tp.holders(layout.model->config().kv_heads, 1);
    for (const ParamShard& held : store.shards()) {
      HeldShard part{rank_at(shape, place), held, store.written(held)};
      if (change) change(part);
      const auto& [rank, shard, written] = part;
      const ParamSpec& spec = store.list()[shard.id];
      Covers& cover = covers[static_cast<size_t>(shard.id)];
      if (shard.is_counted && place.replica == 0)  // replicas have equal norms
        add(cover.counted, spec, shard.begin, shard.end - spec.copies(shard.begin, shard.end));
      add(cover.written, spec, shard.begin + written.begin, shard.begin + written.end);
      const std::vector<Rect> rects = rects_of(spec, shard.begin, shard.end);
      replicas.add({shard.id, place.stage, place.shard, place.tp_rank}, spec, rank, rects);
      if (plan.is_shared(spec.unit) && (place.stage == 0 || place.stage + 1 == shape.pp))
        ends.add({shard.id, place.shard, place.tp_rank, 0}, spec, rank, rects);
      const int64_t common = std::max(shard.begin, spec.elements() - spec.common_elements());
      if (spec.slice.common_rows > 0)
        heads.add({shard.id, place.stage, place.shard, tp.rank / holders}, spec, rank,
                  rects_of(spec, std::min(common, shard.end), shard.end));
    }
  });
  for (size_t id = 0; id < specs.size(); ++id) {
    if (!specs[id].is_trained) continue;
    require_once(covers[id].counted, specs[id], "counted in the norm of the gradient");
    require_once(covers[id].written, specs[id], "written to a checkpoint");
  }
}

}  // namespace ingot
