// step_text SOURCE [KEY=VALUE]...: prints what each rank of a run allocates and does in a step, one line per
// arena and operation. Ranks with the same work are printed once. tools/same_steps.py compares the texts of
// two programs.
#include <fmt/core.h>

#include <exception>

#include "ingot/config/config_toml.h"
#include "ingot/plan/job.h"
#include "ingot/plan/plan.h"

namespace ingot {
namespace {

std::string text_of(const StepRecord& record, const RecordedOp& recorded) {
  const ProgramOp& op = recorded.op;
  if (op.kind == ProgramOp::Kind::kWait) return fmt::format("wait {}", op.ticket);
  const std::string& name = record.names[static_cast<size_t>(op.name)];
  if (op.kind == ProgramOp::Kind::kStart)
    return fmt::format("start {}: {} '{}' of {} bytes, {}, peer {}", op.ticket, kind_name(op.operation), name,
                       op.bytes, record.groups[static_cast<size_t>(op.group)].name, op.peer);
  const OpKey& key = record.keys[static_cast<size_t>(recorded.key)];
  return fmt::format("{}: {}{}{} {}, {:.0f} flops, {:.0f} bytes", name, key.name, key.form.empty() ? "" : " ",
                     key.form, ingot::name(key.dtype), key.flops, key.bytes);
}

void print(const RunConfig& config) {
  for (const RankMemory& memory : plan_rank_memory(config)) {
    fmt::print("memory of {} ranks from rank {}\n", memory.ranks.size(), memory.ranks.front());
    for (const MemoryItem& item : memory.items) fmt::print("  {} {}\n", item.name, item.bytes);
  }
  const JobRecord job = record_job(config);
  for (size_t k = 0; k < job.records.size(); ++k) {
    fmt::print("step of rank {}\n", job.ranks[k]);
    for (const RecordedOp& op : job.records[k].ops) fmt::print("  {}\n", text_of(job.records[k], op));
  }
}

int main_of(int count, char** words) {
  ConfigBuilder builder;
  builder.add_source(words[1]);
  for (int i = 2; i < count; ++i) builder.add_override(words[i]);
  RunConfig config = builder.build();
  if (config.model.vocab == 0) config.model.vocab = planned_vocab(config.data);
  print(config);
  return 0;
}

}  // namespace
}  // namespace ingot

int main(int count, char** words) {
  try {
    return ingot::main_of(count, words);
  } catch (const std::exception& e) {
    fmt::print(stderr, "ingot: {}\n", e.what());
    return 1;
  }
}
