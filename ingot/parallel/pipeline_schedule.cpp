#include "ingot/parallel/pipeline_schedule.h"

#include <algorithm>
#include <limits>

#include "ingot/core/error.h"

namespace ingot {
namespace {

using Kind = PipelineOp::Kind;

// A forward or backward pass of one chunk over one micro-batch.
struct Pass {
  int64_t micro;
  int chunk;
};

// Returns the k-th forward pass of a rank: p micro-batches go through each chunk in turn.
Pass forward_pass(const PipelineShape& shape, int64_t k) {
  if (shape.chunks == 1) return {k, 0};
  const int64_t p = shape.ranks, round = p * shape.chunks, within = k % round;
  return {k / round * p + within % p, static_cast<int>(within / p)};
}

// Returns the k-th backward pass, which visits the chunks from last to first.
Pass backward_pass(const PipelineShape& shape, int64_t k) {
  const Pass pass = forward_pass(shape, k);
  return {pass.micro, shape.chunks - 1 - pass.chunk};
}

// Returns the number of forward passes before forward and backward alternate.
int64_t warm_up(const PipelineShape& shape, int rank) {
  const int64_t passes = shape.micros * shape.chunks, behind = shape.ranks - 1 - rank;
  if (shape.kind == PipelineKind::kGpipe) return passes;
  if (shape.chunks == 1) return std::min(passes, behind);
  return std::min(passes, 2 * behind + static_cast<int64_t>(shape.chunks - 1) * shape.ranks);
}

// Builds one rank's list, with the messages around each pass.
class List {
 public:
  List(const PipelineShape& shape, int rank) : shape_(shape), rank_(rank) {}

  void forward(Pass pass) {
    add(stage(pass) > 0, Kind::kReceiveActivation, pass);
    add(true, Kind::kForward, pass);
    add(stage(pass) + 1 < shape_.stages(), Kind::kSendActivation, pass);
  }
  void backward(Pass pass) {
    add(stage(pass) + 1 < shape_.stages(), Kind::kReceiveGradient, pass);
    add(true, Kind::kBackward, pass);
    add(stage(pass) > 0, Kind::kSendGradient, pass);
  }
  std::vector<PipelineOp> take() { return std::move(ops_); }

 private:
  int stage(Pass pass) const { return pass.chunk * shape_.ranks + rank_; }
  void add(bool is_needed, Kind kind, Pass pass) {
    if (is_needed) ops_.push_back({.kind = kind, .micro = pass.micro, .chunk = pass.chunk});
  }

  const PipelineShape& shape_;
  int rank_;
  std::vector<PipelineOp> ops_;
};

}  // namespace

void PipelineShape::validate() const {
  if (ranks < 1) fail(ErrorKind::kUsage, "parallel.pp must be at least 1, got {}", ranks);
  if (micros < 1) fail(ErrorKind::kUsage, "train.grad_accum must be at least 1, got {}", micros);
  if (kind != PipelineKind::kInterleaved) {
    if (chunks != 1)
      fail(ErrorKind::kUsage, "parallel.chunks must be 1 unless parallel.schedule = \"interleaved\", got {}",
           chunks);
    return;
  }
  if (ranks < 2)
    fail(ErrorKind::kUsage, "parallel.pp must be at least 2 for parallel.schedule = \"interleaved\", got {}",
         ranks);
  if (chunks < 2)
    fail(ErrorKind::kUsage,
         "parallel.chunks must be at least 2 for parallel.schedule = \"interleaved\", got {}", chunks);
  if (micros % ranks != 0)
    fail(ErrorKind::kUsage,
         "train.grad_accum must be a multiple of parallel.pp = {} for parallel.schedule = \"interleaved\", "
         "got {}; the nearest valid value is {}",
         ranks, micros, std::max<int64_t>(1, (micros + ranks / 2) / ranks) * ranks);
}

double PipelineShape::bubble() const {
  return static_cast<double>(ranks - 1) / static_cast<double>(chunks * micros + ranks - 1);
}

std::vector<PipelineOp> pipeline_schedule(const PipelineShape& shape, int rank) {
  shape.validate();
  INGOT_CHECK(rank >= 0 && rank < shape.ranks, "pipeline_schedule: rank {} of {}", rank, shape.ranks);
  const int64_t passes = shape.micros * shape.chunks, ahead = warm_up(shape, rank);
  List list(shape, rank);
  for (int64_t k = 0; k < ahead; ++k) list.forward(forward_pass(shape, k));
  for (int64_t k = ahead; k < passes; ++k) {
    list.forward(forward_pass(shape, k));
    list.backward(backward_pass(shape, k - ahead));
  }
  for (int64_t k = passes - ahead; k < passes; ++k) list.backward(backward_pass(shape, k));
  return list.take();
}

std::vector<PipelineOp> lone_micro_schedule(const PipelineShape& shape, int rank, int64_t micro) {
  List list(shape, rank);
  for (int chunk = 0; chunk < shape.chunks; ++chunk) list.forward({micro, chunk});
  for (int chunk = shape.chunks; chunk-- > 0;) list.backward({micro, chunk});
  return list.take();
}

std::vector<int64_t> micros_in_flight(const std::vector<PipelineOp>& list, int chunks) {
  std::vector<int64_t> now(static_cast<size_t>(chunks)), most(now);
  for (const PipelineOp& op : list) {
    const auto c = static_cast<size_t>(op.chunk);
    if (op.kind == Kind::kForward) most[c] = std::max(most[c], ++now[c]);
    if (op.kind == Kind::kBackward) --now[c];
  }
  return most;
}

std::vector<int> split_units(std::span<const double> costs, int stages) {
  const int units = static_cast<int>(costs.size());
  if (stages < 1 || units < stages)
    fail(ErrorKind::kUsage,
         "parallel.pp times parallel.chunks must lie in 1 .. {}, the units of the model (embedding, "
         "blocks, "
         "head), got {}; the nearest valid value is {}",
         units, stages, std::clamp(stages, 1, std::max(1, units)));
  const auto index = [](int i) { return static_cast<size_t>(i); };
  std::vector<double> before(index(units) + 1);  // cost of units [0, u)
  for (int u = 0; u < units; ++u) before[index(u) + 1] = before[index(u)] + costs[index(u)];
  // best[s][u]: cost of the most expensive of s + 1 stages over units [0, u); cut[s][u]: first unit of
  // the last of them.
  const double none = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> best(index(stages), std::vector<double>(index(units) + 1, none));
  std::vector<std::vector<int>> cut(index(stages), std::vector<int>(index(units) + 1));
  best[0] = before;
  for (int s = 1; s < stages; ++s)
    for (int u = s + 1; u <= units; ++u)
      for (int first = s; first < u; ++first) {
        const double dearest =
            std::max(best[index(s - 1)][index(first)], before[index(u)] - before[index(first)]);
        if (dearest >= best[index(s)][index(u)]) continue;
        best[index(s)][index(u)] = dearest;
        cut[index(s)][index(u)] = first;
      }
  std::vector<int> firsts(index(stages) + 1);
  firsts[index(stages)] = units;
  for (int s = stages - 1; s > 0; --s) firsts[index(s)] = cut[index(s)][index(firsts[index(s) + 1])];
  return firsts;
}

}  // namespace ingot
