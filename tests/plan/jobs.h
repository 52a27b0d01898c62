// Small builders of programs and hardware for the tests of ingot/plan and for bench/virtual_time_bench.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ingot/parallel/pipeline_schedule.h"
#include "ingot/plan/hardware.h"
#include "ingot/plan/rank_program.h"

namespace ingot::plan_test {

using Operation = CommOperation::Kind;

// Hardware with round figures: links of 100 GB/s, NICs of 10 GB/s, no latencies, 8 devices per node.
inline Hardware plain_hardware() {
  Hardware hardware;
  hardware.name = "plain";
  hardware.node.link_bytes_per_s = 100e9;
  hardware.node.link_fraction = 1;
  hardware.network.nic_bytes_per_s = 10e9;
  hardware.network.nic_fraction = 1;
  return hardware;
}

// Writes the program of one rank.
class Writer {
 public:
  void compute(double seconds, const std::string& name = "compute") {
    program_.ops.push_back({.name = index(name), .seconds = seconds});
  }
  uint32_t start(Operation kind, int group, uint64_t bytes, const std::string& name, int peer = 0) {
    program_.ops.push_back({.kind = ProgramOp::Kind::kStart,
                            .name = index(name),
                            .operation = kind,
                            .group = group,
                            .peer = peer,
                            .bytes = bytes,
                            .ticket = tickets_});
    return tickets_++;
  }
  void wait(uint32_t ticket) {
    program_.ops.push_back({.kind = ProgramOp::Kind::kWait, .name = 0, .ticket = ticket});
  }
  void run(Operation kind, int group, uint64_t bytes, const std::string& name, int peer = 0) {
    wait(start(kind, group, bytes, name, peer));
  }
  std::shared_ptr<const RankProgram> take() {
    if (program_.names.empty()) program_.names.emplace_back("nothing");
    return std::make_shared<const RankProgram>(std::exchange(program_, {}));
  }

 private:
  int index(const std::string& name) {
    const auto found = std::ranges::find(program_.names, name);
    if (found == program_.names.end()) program_.names.push_back(name);
    return static_cast<int>(std::ranges::find(program_.names, name) - program_.names.begin());
  }

  RankProgram program_;
  uint32_t tickets_ = 0;
};

// A job in which every rank is in one group of all.
inline RankPrograms world_job(std::vector<std::shared_ptr<const RankProgram>> programs) {
  RankPrograms job;
  std::vector<int> all;
  for (int r = 0; r < static_cast<int>(programs.size()); ++r) all.push_back(r);
  job.groups.assign(programs.size(), {0});
  job.members = {all};
  job.programs = std::move(programs);
  return job;
}

struct StageCosts {
  double forward_s = 0, backward_s = 0;
  uint64_t message_bytes = 0;
  bool is_memory_bounded = true;  // false: activations never wait for memory
};

// Writes one rank's list of a pipeline. Activations run in `group` and gradients in the next one, as in
// parallel/pipeline.h. As there, an activation is received into the memory of an earlier micro-batch, once
// the gradient that was sent from it is gone. Other sends are waited for at the end.
inline void write_pipeline(Writer& writer, const PipelineShape& shape, int rank, int group,
                           const StageCosts& costs) {
  const std::vector<PipelineOp> list = pipeline_schedule(shape, rank);
  const std::vector<int64_t> memories = micros_in_flight(list, shape.chunks);
  std::map<std::pair<int, int64_t>, uint32_t> gradients;  // sends in flight, by chunk and micro-batch
  std::vector<uint32_t> activations;
  const int p = shape.ranks, next = (rank + 1) % p, previous = (rank + p - 1) % p;
  for (const PipelineOp& op : list) {
    switch (op.kind) {
      case PipelineOp::Kind::kReceiveActivation: {
        const auto earlier = gradients.find({op.chunk, op.micro - memories[static_cast<size_t>(op.chunk)]});
        if (costs.is_memory_bounded && earlier != gradients.end()) {
          writer.wait(earlier->second);
          gradients.erase(earlier);
        }
        writer.run(Operation::kReceive, group, costs.message_bytes, "activation", previous);
        break;
      }
      case PipelineOp::Kind::kForward:
        writer.compute(costs.forward_s, "forward");
        break;
      case PipelineOp::Kind::kSendActivation:
        activations.push_back(writer.start(Operation::kSend, group, costs.message_bytes, "activation", next));
        break;
      case PipelineOp::Kind::kReceiveGradient:
        writer.run(Operation::kReceive, group + 1, costs.message_bytes, "gradient", next);
        break;
      case PipelineOp::Kind::kBackward:
        writer.compute(costs.backward_s, "backward");
        break;
      case PipelineOp::Kind::kSendGradient:
        gradients[{op.chunk, op.micro}] =
            writer.start(Operation::kSend, group + 1, costs.message_bytes, "gradient", previous);
        break;
    }
  }
  for (const uint32_t send : activations) writer.wait(send);
  for (const auto& [which, send] : gradients) writer.wait(send);
}

inline RankPrograms pipeline_job(const PipelineShape& shape, const StageCosts& costs) {
  std::vector<std::shared_ptr<const RankProgram>> programs;
  for (int r = 0; r < shape.ranks; ++r) {
    Writer writer;
    write_pipeline(writer, shape, r, 0, costs);
    programs.push_back(writer.take());
  }
  RankPrograms job = world_job(std::move(programs));
  job.members.push_back(job.members[0]);
  job.groups.assign(job.programs.size(), {0, 1});
  return job;
}

// Sizes of a synthetic step with tensor parallelism, pipeline and replicas.
struct MeshJob {
  int tp = 8, pp = 4, dp = 32;
  int64_t micros = 16;
  int layers = 20;                            // per stage
  double layer_s = 1.2e-3;                    // forward of one layer; backward takes twice that
  uint64_t activation_bytes = 67108864;       // 4096 tokens of width 8192 in bf16
  uint64_t layer_gradient_bytes = 427819008;  // 1.71 GB in bf16 over tp 8, reduced in f32
};

// Returns the programs of tp * pp * dp ranks; tensor parallelism is the fastest axis, replicas the next one.
// Each layer runs four all_reduces over tp, gradients go in one bucket per layer from the last micro-batch
// on, and the step ends with a sum over all ranks.
inline RankPrograms mesh_job(const MeshJob& mesh) {
  RankPrograms job;
  const int stage_ranks = mesh.tp * mesh.dp, ranks = stage_ranks * mesh.pp;
  const auto group_of = [&](auto rank_at, int count) {
    std::vector<int> members;
    for (int i = 0; i < count; ++i) members.push_back(rank_at(i));
    job.members.push_back(std::move(members));
  };
  for (int g = 0; g < ranks / mesh.tp; ++g) group_of([&](int i) { return g * mesh.tp + i; }, mesh.tp);
  const int first_pp = static_cast<int>(job.members.size());
  for (int repeat = 0; repeat < 2; ++repeat)  // activations, gradients
    for (int g = 0; g < stage_ranks; ++g) group_of([&](int i) { return g + i * stage_ranks; }, mesh.pp);
  const int first_dp = static_cast<int>(job.members.size());
  for (int s = 0; s < mesh.pp; ++s)
    for (int t = 0; t < mesh.tp; ++t)
      group_of([&](int i) { return s * stage_ranks + i * mesh.tp + t; }, mesh.dp);
  group_of([](int i) { return i; }, ranks);
  const int world = static_cast<int>(job.members.size()) - 1;

  enum Group { kTp, kActivations, kGradients, kDp, kWorld };
  const PipelineShape shape{
      .kind = PipelineKind::kOneFOneB, .ranks = mesh.pp, .chunks = 1, .micros = mesh.micros};
  std::vector<std::shared_ptr<const RankProgram>> stages;
  for (int s = 0; s < mesh.pp; ++s) {
    Writer writer;
    std::vector<uint32_t> later;
    for (const PipelineOp& op : pipeline_schedule(shape, s)) {
      const bool is_forward = op.kind == PipelineOp::Kind::kForward;
      if (is_forward || op.kind == PipelineOp::Kind::kBackward) {
        for (int layer = 0; layer < mesh.layers; ++layer) {
          for (int half = 0; half < 2; ++half) {
            writer.compute(mesh.layer_s * (is_forward ? 0.5 : 1), is_forward ? "forward" : "backward");
            writer.run(Operation::kAllReduce, kTp, mesh.activation_bytes,
                       is_forward ? "forward" : "backward");
          }
          if (!is_forward && op.micro + 1 == mesh.micros)
            later.push_back(writer.start(Operation::kAllReduce, kDp, mesh.layer_gradient_bytes, "gradients"));
        }
      } else {
        const bool is_activation =
            op.kind == PipelineOp::Kind::kReceiveActivation || op.kind == PipelineOp::Kind::kSendActivation;
        const bool is_send =
            op.kind == PipelineOp::Kind::kSendActivation || op.kind == PipelineOp::Kind::kSendGradient;
        const uint32_t ticket = writer.start(
            is_send ? Operation::kSend : Operation::kReceive, is_activation ? kActivations : kGradients,
            mesh.activation_bytes / static_cast<uint64_t>(mesh.tp), is_activation ? "activation" : "gradient",
            is_activation == is_send ? s + 1 : s - 1);
        if (is_send)
          later.push_back(ticket);
        else
          writer.wait(ticket);
      }
    }
    for (const uint32_t ticket : later) writer.wait(ticket);
    writer.run(Operation::kAllReduce, kWorld, 8, "norm");
    writer.compute(5e-3, "update");
    stages.push_back(writer.take());
  }
  for (int r = 0; r < ranks; ++r) {
    const int s = r / stage_ranks, t = r % mesh.tp;
    job.programs.push_back(stages[static_cast<size_t>(s)]);
    job.groups.push_back({r / mesh.tp, first_pp + r % stage_ranks, first_pp + stage_ranks + r % stage_ranks,
                          first_dp + s * mesh.tp + t, world});
  }
  return job;
}

}  // namespace ingot::plan_test
