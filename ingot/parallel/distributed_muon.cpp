#include "ingot/parallel/distributed_muon.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "ingot/core/copy.h"
#include "ingot/ops/matrix_shard.h"

namespace ingot {
namespace {

int64_t elements_of(std::span<const Rect> rects) {
  int64_t total = 0;
  for (const Rect& rect : rects) total += rect.elements();
  return total;
}

// Blocks of a message begin at multiples of so many elements, which wide loads on a device need.
constexpr int64_t kBlockAlign = 64;

int64_t aligned_block(int64_t elements) { return (elements + kBlockAlign - 1) / kBlockAlign * kBlockAlign; }

}  // namespace

std::vector<std::vector<size_t>> assign_by_cost(std::span<const double> costs, int owners) {
  std::vector<size_t> order(costs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater<>(), [&](size_t task) { return costs[task]; });
  std::vector<std::vector<size_t>> tasks(static_cast<size_t>(owners));
  std::vector<double> load(tasks.size());
  for (const size_t task : order) {
    const auto owner = static_cast<size_t>(std::ranges::min_element(load) - load.begin());
    tasks[owner].push_back(task);
    load[owner] += costs[task];
  }
  return tasks;
}

DistributedMuon::Buffers::Buffers(const DistributedMuon& update, Arena& arena) {
  const int64_t shards = update.ranks() * update.largest_shard_;
  const bool has_shards = update.ranks() > 1;
  matrix = arena.alloc(DType::f32, {update.largest_matrix_});
  if (has_shards) {
    sent = arena.alloc(DType::f32, {shards});
    received = arena.alloc(DType::f32, {shards});
    outgoing = arena.alloc(update.payload_, {shards});
    own = arena.alloc(update.payload_, {shards});
  }
  if (update.replicas_.size() > 1) all = arena.alloc(update.payload_, {update.replicas_.size() * shards});
}

// Exchanges all ranks' rects, so that each rank knows where the others' shards are in each matrix.
void DistributedMuon::exchange_shards() {
  size_t most = 1;
  for (const Task& task : tasks_) most = std::max(most, task.given.rects.size());
  auto longest = static_cast<int64_t>(most);
  weights_.all_reduce("rectangles of a matrix", Tensor(&longest, DType::i64, {1}), ReduceOp::kMax);
  const auto line = static_cast<size_t>(2 + 4 * longest);  // is_added, number of rects, rects
  std::vector<int64_t> own(line * tasks_.size()), all(own.size() * static_cast<size_t>(ranks()));
  for (size_t t = 0; t < tasks_.size(); ++t) {
    int64_t* to = own.data() + t * line;
    *to++ = tasks_[t].given.is_added ? 1 : 0;
    *to++ = std::ssize(tasks_[t].given.rects);
    for (const Rect& rect : tasks_[t].given.rects)
      for (const int64_t number : {rect.row, rect.rows, rect.column, rect.columns}) *to++ = number;
  }
  weights_.all_gather_into("rectangles", Tensor(all.data(), DType::i64, {std::ssize(all)}),
                           Tensor(own.data(), DType::i64, {std::ssize(own)}));
  for (size_t r = 0; r < static_cast<size_t>(ranks()); ++r)
    for (size_t t = 0; t < tasks_.size(); ++t) {
      const int64_t* from = all.data() + (r * tasks_.size() + t) * line;
      tasks_[t].is_added.push_back(*from++ == 1);
      std::vector<Rect> rects(static_cast<size_t>(*from++));
      for (Rect& rect : rects) {
        rect = {from[0], from[1], from[2], from[3]};
        from += 4;
      }
      tasks_[t].shards.push_back(std::move(rects));
    }
}

void DistributedMuon::make_rounds() {
  std::vector<double> costs;
  std::vector<size_t> held;  // by any of these ranks; the others are on other stages
  for (size_t t = 0; t < tasks_.size(); ++t) {
    const auto has_elements = [](const std::vector<Rect>& rects) { return elements_of(rects) > 0; };
    if (std::ranges::none_of(tasks_[t].shards, has_elements)) continue;
    held.push_back(t);
    costs.push_back(tasks_[t].given.flops);
  }
  const int owners = replicas_.size() * ranks();
  const std::vector<std::vector<size_t>> assigned = assign_by_cost(costs, owners);
  for (size_t owner = 0; owner < assigned.size(); ++owner) {
    for (size_t k = 0; k < assigned[owner].size(); ++k) {
      Task& task = tasks_[held[assigned[owner][k]]];
      task.replica = static_cast<int>(owner) / ranks();
      task.rank = static_cast<int>(owner) % ranks();
      if (rounds_.size() <= k) rounds_.push_back({.tasks = std::vector<int>(assigned.size(), -1)});
      rounds_[k].tasks[owner] = static_cast<int>(held[assigned[owner][k]]);
      for (const std::vector<Rect>& rects : task.shards)
        rounds_[k].shard = std::max(rounds_[k].shard, aligned_block(elements_of(rects)));
      largest_matrix_ = std::max(largest_matrix_, task.given.shape.elements());
    }
  }
  for (size_t k = 0; k < rounds_.size(); ++k) {
    largest_shard_ = std::max(largest_shard_, rounds_[k].shard);
    for (const char* what : {"collect", "return", "gather"})
      names_.push_back(fmt::format("muon {} {}", what, k));
  }
}

std::vector<UpdateComm::StatePlacement> DistributedMuon::plan(std::vector<MatrixTask> tasks) {
  for (MatrixTask& task : tasks) tasks_.push_back({.given = std::move(task), .shards = {}, .is_added = {}});
  if (tasks_.empty()) return {};
  exchange_shards();
  make_rounds();
  std::vector<StatePlacement> keeps;
  for (const Task& task : tasks_) {
    const bool is_ours = task.replica == replicas_.rank();
    keeps.push_back(
        {.elements = is_ours && task.given.is_added, .whole = is_ours && task.rank == weights_.rank()});
  }
  return keeps;
}

size_t DistributedMuon::scratch_bytes(Memory memory) const {
  Arena arena("mesh update plan", memory);
  const Buffers buffers(*this, arena);
  return arena.peak_bytes();
}

// The state of a step in progress.
struct DistributedMuon::Step {
  DistributedMuon& update;
  MatrixWork& work;
  Stream& stream;
  Buffers buffers;
  Pending collecting, returning, gathering;
  int returned = -1, gathered = -1;  // rounds in flight, -1 if none

  bool has_shards() const { return update.ranks() > 1; }
  bool has_replicas() const { return update.replicas_.size() > 1; }
  const Round& round(int k) const { return update.rounds_[static_cast<size_t>(k)]; }
  const std::string& name(int k, int what) const {
    const int number = 3 * k + what;
    return update.names_[static_cast<size_t>(number)];
  }
  Tensor block(const Tensor& buffer, int rank, int64_t shard, int64_t n) const {
    return buffer.rows(rank * shard, rank * shard + n);
  }
  // Returns this rank's task in a round, -1 if it has none.
  int own_task(int k) const {
    return update.task_of(round(k), update.replicas_.rank(), update.weights_.rank());
  }
  Tensor matrix_of(const Task& task) const {
    return buffers.matrix.rows(0, task.given.shape.elements()).reshape(task.given.shape);
  }
  void wait(Pending& pending) {
    const Span all(stream.trace, "communication"), own(stream.trace, "muon communication");
    pending.wait();
  }

  void start_collecting(int k);
  void finish_collecting(int k);
  void apply(int k);
  void move_on();
  void start_returning(int k);
};

void DistributedMuon::Step::start_collecting(int k) {
  if (!has_shards() || k == std::ssize(update.rounds_)) return;
  const int64_t shard = round(k).shard;
  for (int r = 0; r < update.ranks(); ++r) {
    const int t = update.task_of(round(k), update.replicas_.rank(), r);
    if (t < 0 || !update.tasks_[static_cast<size_t>(t)].given.is_added) continue;
    const int64_t n = elements_of(update.tasks_[static_cast<size_t>(t)].given.rects);
    if (n > 0) work.prepare(static_cast<size_t>(t), block(buffers.sent, r, shard, n));
  }
  const int64_t all = update.ranks() * shard;
  collecting =
      update.weights_.start_all_to_all(name(k, 0), buffers.received.rows(0, all), buffers.sent.rows(0, all));
}

// Waits until this rank's whole matrix is in buffers.matrix.
void DistributedMuon::Step::finish_collecting(int k) {
  if (has_shards()) wait(collecting);
  if (own_task(k) < 0) return;
  const Task& task = update.tasks_[static_cast<size_t>(own_task(k))];
  const Tensor matrix = matrix_of(task);
  if (!has_shards())
    return work.prepare(static_cast<size_t>(own_task(k)), matrix.reshape({matrix.elements()}));
  for (int r = 0; r < update.ranks(); ++r) {
    const std::vector<Rect>& rects = task.shards[static_cast<size_t>(r)];
    if (task.is_added[static_cast<size_t>(r)])
      put_shard(matrix, block(buffers.received, r, round(k).shard, elements_of(rects)), rects, stream);
  }
}

void DistributedMuon::Step::apply(int k) {
  const int64_t shard = round(k).shard;
  for (int replica = 0; replica < update.replicas_.size(); ++replica)
    for (int r = 0; r < update.ranks(); ++r) {
      const int t = update.task_of(round(k), replica, r);
      if (t < 0) continue;
      const int64_t n = elements_of(update.tasks_[static_cast<size_t>(t)].given.rects);
      const Tensor& from = has_replicas() ? buffers.all : buffers.own;
      if (n > 0) work.apply(static_cast<size_t>(t), block(from, replica * update.ranks() + r, shard, n));
    }
}

// Moves each round in flight to its next phase, or applies it.
void DistributedMuon::Step::move_on() {
  if (gathered >= 0) {
    wait(gathering);
    apply(std::exchange(gathered, -1));
  }
  if (returned < 0) return;
  wait(returning);
  const int k = std::exchange(returned, -1);
  if (!has_replicas()) return apply(k);
  const int64_t n = update.ranks() * round(k).shard;
  const Tensor own = block(buffers.all, update.replicas_.rank(), n, n);
  copy(own, block(buffers.own, 0, n, n), stream);
  gathering = update.replicas_.start_all_gather_into(name(k, 2),
                                                     buffers.all.rows(0, update.replicas_.size() * n), own);
  gathered = k;
}

void DistributedMuon::Step::start_returning(int k) {
  const int64_t shard = round(k).shard, n = update.ranks() * shard;
  const Tensor out =
      has_shards() ? buffers.outgoing.rows(0, n) : block(buffers.all, update.replicas_.rank(), n, n);
  if (const int t = own_task(k); t >= 0) {
    const Task& task = update.tasks_[static_cast<size_t>(t)];
    for (int r = 0; r < update.ranks(); ++r) {
      const std::vector<Rect>& rects = task.shards[static_cast<size_t>(r)];
      cut_shard(block(out, r, shard, elements_of(rects)), matrix_of(task), rects, stream);
    }
  }
  if (has_shards()) {
    returning = update.weights_.start_all_to_all(name(k, 1), buffers.own.rows(0, n), out);
    returned = k;
  } else {
    gathering = update.replicas_.start_all_gather_into(name(k, 2),
                                                       buffers.all.rows(0, update.replicas_.size() * n), out);
    gathered = k;
  }
}

void DistributedMuon::run(MatrixWork& work, Arena& scratch, Stream& stream) {
  const Arena::Mark mark = scratch.mark();
  Step step{*this, work, stream, Buffers(*this, scratch), {}, {}, {}};
  const int rounds = static_cast<int>(rounds_.size());
  step.start_collecting(0);
  for (int k = 0; k < rounds; ++k) {
    step.finish_collecting(k);
    step.start_collecting(k + 1);
    if (const int t = step.own_task(k); t >= 0)
      work.compute(static_cast<size_t>(t), step.matrix_of(tasks_[static_cast<size_t>(t)]));
    step.move_on();
    step.start_returning(k);
  }
  step.move_on();
  step.move_on();
  scratch.release_to(mark);
}

}  // namespace ingot
