#include "ingot/parallel/mesh_update.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <utility>

#include "ingot/core/parallel.h"

namespace ingot {
namespace {

int64_t elements_of(std::span<const Box> boxes) {
  int64_t total = 0;
  for (const Box& box : boxes) total += box.elements();
  return total;
}

// Calls f(piece, matrix, count) for the rows of the boxes: `count` elements of the piece from `piece` on are
// those of the matrix of C columns from `matrix` on.
template <typename F>
void for_each_row(std::span<const Box> boxes, int64_t C, F&& f) {
  int64_t here = 0;
  for (const Box& box : boxes) {
    parallel_for(box.rows, std::max<int64_t>(1, kGrain / box.columns), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        f(here + r * box.columns, (box.row + r) * C + box.column, box.columns);
    });
    here += box.elements();
  }
}

void put_piece(const Tensor& matrix, const Tensor& piece, std::span<const Box> boxes) {
  for_each_row(boxes, matrix.dim(1), [&](int64_t from, int64_t to, int64_t count) {
    std::memcpy(matrix.as<float>() + to, piece.as<float>() + from,
                static_cast<size_t>(count) * sizeof(float));
  });
}

void cut_piece(const Tensor& piece, const Tensor& matrix, std::span<const Box> boxes) {
  for_each_row(boxes, matrix.dim(1), [&](int64_t to, int64_t from, int64_t count) {
    const float* x = matrix.as<float>() + from;
    if (piece.dtype == DType::f32) {
      std::memcpy(piece.as<float>() + to, x, static_cast<size_t>(count) * sizeof(float));
      return;
    }
    bf16* y = piece.as<bf16>() + to;
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) y[i].bits = bf16(x[i]).bits;  // as numbers: it vectorises
  });
}

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

MeshUpdate::Buffers::Buffers(const MeshUpdate& update, Arena& arena) {
  const int64_t pieces = update.ranks() * update.largest_piece_;
  const bool has_shards = update.ranks() > 1;
  matrix = arena.alloc(DType::f32, {update.largest_matrix_});
  if (has_shards) {
    sent = arena.alloc(DType::f32, {pieces});
    received = arena.alloc(DType::f32, {pieces});
    outgoing = arena.alloc(update.payload_, {pieces});
    own = arena.alloc(update.payload_, {pieces});
  }
  if (update.replicas_.size() > 1) all = arena.alloc(update.payload_, {update.replicas_.size() * pieces});
}

// Everyone learns where the others' pieces lie.
void MeshUpdate::exchange_pieces() {
  size_t most = 1;
  for (const Task& task : tasks_) most = std::max(most, task.given.boxes.size());
  auto longest = static_cast<int64_t>(most);
  weights_.all_reduce("boxes of a matrix", Tensor(&longest, DType::i64, {1}), ReduceOp::kMax);
  const auto line = static_cast<size_t>(2 + 4 * longest);  // is it counted, how many boxes, boxes
  std::vector<int64_t> own(line * tasks_.size()), all(own.size() * static_cast<size_t>(ranks()));
  for (size_t t = 0; t < tasks_.size(); ++t) {
    int64_t* to = own.data() + t * line;
    *to++ = tasks_[t].given.is_counted ? 1 : 0;
    *to++ = std::ssize(tasks_[t].given.boxes);
    for (const Box& box : tasks_[t].given.boxes)
      for (const int64_t number : {box.row, box.rows, box.column, box.columns}) *to++ = number;
  }
  weights_.all_gather_into("boxes", Tensor(all.data(), DType::i64, {std::ssize(all)}),
                           Tensor(own.data(), DType::i64, {std::ssize(own)}));
  for (size_t r = 0; r < static_cast<size_t>(ranks()); ++r)
    for (size_t t = 0; t < tasks_.size(); ++t) {
      const int64_t* from = all.data() + (r * tasks_.size() + t) * line;
      tasks_[t].is_counted.push_back(*from++ == 1);
      std::vector<Box> boxes(static_cast<size_t>(*from++));
      for (Box& box : boxes) {
        box = {from[0], from[1], from[2], from[3]};
        from += 4;
      }
      tasks_[t].pieces.push_back(std::move(boxes));
    }
}

void MeshUpdate::make_rounds() {
  std::vector<double> costs;
  std::vector<size_t> held;  // by any of these ranks: others are of other stages
  for (size_t t = 0; t < tasks_.size(); ++t) {
    const auto has_elements = [](const std::vector<Box>& boxes) { return elements_of(boxes) > 0; };
    if (std::ranges::none_of(tasks_[t].pieces, has_elements)) continue;
    held.push_back(t);
    costs.push_back(tasks_[t].given.flops);
  }
  const int owners = replicas_.size() * ranks();
  const std::vector<std::vector<size_t>> assigned = assign_by_cost(costs, owners);
  double largest = 0;
  for (size_t owner = 0; owner < assigned.size(); ++owner) {
    double load = 0;
    for (size_t k = 0; k < assigned[owner].size(); ++k) {
      Task& task = tasks_[held[assigned[owner][k]]];
      task.replica = static_cast<int>(owner) / ranks();
      task.rank = static_cast<int>(owner) % ranks();
      load += task.given.flops;
      if (rounds_.size() <= k) rounds_.push_back({.tasks = std::vector<int>(assigned.size(), -1)});
      rounds_[k].tasks[owner] = static_cast<int>(held[assigned[owner][k]]);
      for (const std::vector<Box>& boxes : task.pieces)
        rounds_[k].piece = std::max(rounds_[k].piece, elements_of(boxes));
      largest_matrix_ = std::max(largest_matrix_, task.given.shape.elements());
    }
    largest = std::max(largest, load);
  }
  const double total = std::accumulate(costs.begin(), costs.end(), 0.0);
  if (total > 0) imbalance_ = largest * owners / total;
  for (size_t k = 0; k < rounds_.size(); ++k) {
    largest_piece_ = std::max(largest_piece_, rounds_[k].piece);
    for (const char* what : {"collect", "return", "gather"})
      names_.push_back(fmt::format("muon {} {}", what, k));
  }
  waits_s_.resize(rounds_.size());
}

std::vector<SharedUpdate::Keeps> MeshUpdate::plan(std::vector<MatrixTask> tasks) {
  for (MatrixTask& task : tasks) tasks_.push_back({.given = std::move(task), .pieces = {}, .is_counted = {}});
  if (tasks_.empty()) return {};
  exchange_pieces();
  make_rounds();
  std::vector<Keeps> keeps;
  for (const Task& task : tasks_) {
    const bool is_ours = task.replica == replicas_.rank();
    keeps.push_back(
        {.elements = is_ours && task.given.is_counted, .whole = is_ours && task.rank == weights_.rank()});
  }
  return keeps;
}

size_t MeshUpdate::scratch_bytes() const {
  Arena arena("mesh update plan");
  const Buffers buffers(*this, arena);
  return arena.peak_bytes();
}

// A step under way.
struct MeshUpdate::Step {
  MeshUpdate& update;
  MatrixWork& work;
  Stream& stream;
  Buffers buffers;
  Pending collecting, returning, gathering;
  int returned = -1, gathered = -1;  // the rounds that are under way there

  bool has_shards() const { return update.ranks() > 1; }
  bool has_replicas() const { return update.replicas_.size() > 1; }
  const Round& round(int k) const { return update.rounds_[static_cast<size_t>(k)]; }
  const std::string& name(int k, int what) const {
    const int number = 3 * k + what;
    return update.names_[static_cast<size_t>(number)];
  }
  Tensor part(const Tensor& buffer, int rank, int64_t piece, int64_t n) const {
    return buffer.rows(rank * piece, rank * piece + n);
  }
  // This rank's task of a round.
  int own_task(int k) const {
    return update.task_of(round(k), update.replicas_.rank(), update.weights_.rank());
  }
  Tensor matrix_of(const Task& task) const {
    return buffers.matrix.rows(0, task.given.shape.elements()).reshape(task.given.shape);
  }
  void wait(Pending& pending, int k) {
    using Clock = std::chrono::steady_clock;
    const Span all(stream.trace, "communication"), own(stream.trace, "muon communication");
    const Clock::time_point begin = Clock::now();
    pending.wait();
    update.waits_s_[static_cast<size_t>(k)] += std::chrono::duration<double>(Clock::now() - begin).count();
  }

  void start_collecting(int k);
  void finish_collecting(int k);
  void apply(int k);
  void move_on();
  void start_returning(int k);
};

void MeshUpdate::Step::start_collecting(int k) {
  if (!has_shards() || k == std::ssize(update.rounds_)) return;
  const int64_t piece = round(k).piece;
  for (int r = 0; r < update.ranks(); ++r) {
    const int t = update.task_of(round(k), update.replicas_.rank(), r);
    if (t < 0 || !update.tasks_[static_cast<size_t>(t)].given.is_counted) continue;
    const int64_t n = elements_of(update.tasks_[static_cast<size_t>(t)].given.boxes);
    if (n > 0) work.prepare(static_cast<size_t>(t), part(buffers.sent, r, piece, n));
  }
  const int64_t all = update.ranks() * piece;
  collecting =
      update.weights_.start_all_to_all(name(k, 0), buffers.received.rows(0, all), buffers.sent.rows(0, all));
}

// The whole of this rank's task is in buffers.matrix.
void MeshUpdate::Step::finish_collecting(int k) {
  if (has_shards()) wait(collecting, k);
  if (own_task(k) < 0) return;
  const Task& task = update.tasks_[static_cast<size_t>(own_task(k))];
  const Tensor matrix = matrix_of(task);
  if (!has_shards())
    return work.prepare(static_cast<size_t>(own_task(k)), matrix.reshape({matrix.elements()}));
  for (int r = 0; r < update.ranks(); ++r) {
    const std::vector<Box>& boxes = task.pieces[static_cast<size_t>(r)];
    if (task.is_counted[static_cast<size_t>(r)])
      put_piece(matrix, part(buffers.received, r, round(k).piece, elements_of(boxes)), boxes);
  }
}

void MeshUpdate::Step::apply(int k) {
  const int64_t piece = round(k).piece;
  for (int replica = 0; replica < update.replicas_.size(); ++replica)
    for (int r = 0; r < update.ranks(); ++r) {
      const int t = update.task_of(round(k), replica, r);
      if (t < 0) continue;
      const int64_t n = elements_of(update.tasks_[static_cast<size_t>(t)].given.boxes);
      const Tensor& from = has_replicas() ? buffers.all : buffers.own;
      if (n > 0) work.apply(static_cast<size_t>(t), part(from, replica * update.ranks() + r, piece, n));
    }
}

// What is under way moves one stage on, or is applied.
void MeshUpdate::Step::move_on() {
  if (gathered >= 0) {
    wait(gathering, gathered);
    apply(std::exchange(gathered, -1));
  }
  if (returned < 0) return;
  wait(returning, returned);
  const int k = std::exchange(returned, -1);
  if (!has_replicas()) return apply(k);
  const int64_t n = update.ranks() * round(k).piece;
  const Tensor own = part(buffers.all, update.replicas_.rank(), n, n);
  std::memcpy(own.data, buffers.own.data, own.bytes());
  gathering = update.replicas_.start_all_gather_into(name(k, 2),
                                                     buffers.all.rows(0, update.replicas_.size() * n), own);
  gathered = k;
}

void MeshUpdate::Step::start_returning(int k) {
  const int64_t piece = round(k).piece, n = update.ranks() * piece;
  const Tensor out =
      has_shards() ? buffers.outgoing.rows(0, n) : part(buffers.all, update.replicas_.rank(), n, n);
  if (const int t = own_task(k); t >= 0) {
    const Task& task = update.tasks_[static_cast<size_t>(t)];
    for (int r = 0; r < update.ranks(); ++r) {
      const std::vector<Box>& boxes = task.pieces[static_cast<size_t>(r)];
      cut_piece(part(out, r, piece, elements_of(boxes)), matrix_of(task), boxes);
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

void MeshUpdate::run(MatrixWork& work, Arena& scratch, Stream& stream) {
  std::ranges::fill(waits_s_, 0.0);
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
