#include "ingot/plan/plan_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ingot/console/console.h"
#include "ingot/core/timeline.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

double number(uint64_t n) { return static_cast<double>(n); }

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string flops_text(double flops) {
  if (flops >= 1e12) return fmt::format("{:.2f} TFLOP", flops * 1e-12);
  if (flops >= 1e9) return fmt::format("{:.2f} GFLOP", flops * 1e-9);
  return fmt::format("{:.2f} MFLOP", flops * 1e-6);
}

std::string duration_text(double seconds) {
  if (seconds >= 1) return fmt::format("{:.2f} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.2f} ms", seconds * 1e3);
  return fmt::format("{:.1f} us", seconds * 1e6);
}

std::string hours_text(double hours) {
  if (hours >= 48) return fmt::format("{:.1f} days", hours / 24);
  return hours >= 1 ? fmt::format("{:.1f} hours", hours) : format_time(hours * 3600);
}

void add_model(const Plan& plan, std::string& text) {
  text += fmt::format("\n{:<22}{:>12}{:>18}\n", "model", "parameters", "FLOP per token");
  for (const ModelPart& part : plan.model)
    text +=
        fmt::format("  {:<20}{:>12}{:>18}\n", part.name, format_count(static_cast<double>(part.parameters)),
                    part.flops_per_token > 0 ? flops_text(part.flops_per_token) : "-");
  text += fmt::format("  {:<20}{:>12}{:>18}\n", "all", format_count(static_cast<double>(plan.parameters)),
                      flops_text(plan.flops_per_token));
}

uint64_t copy_bytes(const RankMemory& rank) {
  const auto copy = std::ranges::find(rank.items, kCheckpointCopy, &MemoryItem::name);
  return copy == rank.items.end() ? 0 : std::min(copy->bytes, rank.peak_bytes);
}

void add_memory(const Plan& plan, const PlanTarget& target, std::string& text) {
  // Shows the class of ranks that takes most.
  const auto most = std::ranges::max_element(plan.memory, {}, &RankMemory::peak_bytes);
  text += fmt::format("\nmemory of rank {:<7}{:>12}\n", most->ranks.front(),
                      format_bytes(number(most->peak_bytes)));
  for (const MemoryItem& item : most->items)
    if (item.bytes > 0)
      text += fmt::format("  {:<24}{:>8}{}\n", item.name, format_bytes(number(item.bytes)),
                          target.is_machine || item.memory == Memory::kDevice ? "" : "   on the host");
  if (const uint64_t copy = copy_bytes(*most); copy > 0 && target.is_machine)
    text += fmt::format("  {} but for the copy while a checkpoint is written\n",
                        format_bytes(number(most->peak_bytes - copy)));
  text += fmt::format("  {}: {} has {}\n", plan.fits ? "fits" : "does not fit", target.memory_source,
                      format_bytes(number(target.memory_bytes)));
  if (!plan.fits) text += "  " + plan.unfit + "\n";
}

void add_step(const Plan& plan, std::string& text) {
  const StepPlan& step = plan.step;
  const auto row = [&](const std::string& name, double s) {
    if (s / step.step_s >= 0.0005)
      text += fmt::format("  {:<32}{:>12}{:>9}\n", name, duration_text(s), percent(s / step.step_s));
  };
  text += fmt::format("\n{:<34}{:>12}\n", fmt::format("a step of {} tokens", format_count(step.tokens)),
                      duration_text(step.step_s));
  for (const auto& [part, s] : step.parts) row(part, s);
  for (const auto& [group, s] : step.waits) row("waits for " + group, s);
  text += fmt::format("  {} tokens/s, MFU {}", format_count(plan.tokens_per_s), percent(plan.mfu));
  if (plan.schedule.ranks.size() > 1)
    text += fmt::format(", exposed communication {}", percent(step.exposed_comm_s / step.step_s));
  if (step.ideal_bubble > 0)
    text += fmt::format(", bubble {} (ideal {})", percent(step.bubble), percent(step.ideal_bubble));
  text += "\n";
}

void add_run(const Plan& plan, std::string& text) {
  const RunLengthPlan& run = plan.run;
  const double ratio = static_cast<double>(run.tokens) / static_cast<double>(plan.parameters);
  text += fmt::format("\nthe run: {} steps, {} tokens, {} of training", run.steps,
                      format_count(static_cast<double>(run.tokens)), hours_text(run.hours));
  if (run.kwh > 0) text += fmt::format(", {:.1f} kWh", run.kwh);
  if (run.cost > 0) text += fmt::format(", price {}", format_count(run.cost));
  text +=
      fmt::format("\n  {:.1f} tokens per parameter; {:.0f} use the computing best (Chinchilla): {} tokens\n",
                  ratio, kChinchilla, format_count(kChinchilla * static_cast<double>(plan.parameters)));
}

}  // namespace

std::string plan_text(const Plan& plan, const PlanTarget& target) {
  std::string text = fmt::format("{} parameters, {} per token; {} on {}\n",
                                 format_count(static_cast<double>(plan.parameters)),
                                 flops_text(plan.flops_per_token), plan.layout, target.hardware.name);
  add_model(plan, text);
  add_memory(plan, target, text);
  add_step(plan, text);
  add_run(plan, text);
  if (!plan.refused.empty())
    text += fmt::format("\nIngot cannot run this on {}: {}\n", target.hardware.name, plan.refused);
  return text;
}

std::string plan_json(const Plan& plan, const PlanTarget& target) {
  Json ranks = Json::array(), parts = Json::object(), waits = Json::object(), model = Json::object();
  for (const RankMemory& rank : plan.memory) {
    Json arenas = Json::object();
    for (const MemoryItem& item : rank.items)
      arenas[item.name] = arenas.value(item.name, uint64_t{0}) + item.bytes;
    ranks.push_back({{"rank", rank.ranks.front()},
                     {"count", rank.ranks.size()},
                     {"arenas", arenas},
                     {"peak_bytes", rank.peak_bytes},
                     {"copy_for_checkpoints_bytes", copy_bytes(rank)}});
  }
  for (const auto& [name, s] : plan.step.parts) parts[name] = s;
  for (const auto& [name, s] : plan.step.waits) waits[name] = s;
  for (const ModelPart& part : plan.model)
    model[part.name] = {{"parameters", part.parameters}, {"flops_per_token", part.flops_per_token}};
  const RunLengthPlan& run = plan.run;
  const auto known = [](double value) { return value > 0 ? Json(value) : Json(nullptr); };
  const Json json{
      {"parameters", plan.parameters},
      {"flops_per_token", plan.flops_per_token},
      {"model", model},
      {"layout", plan.layout},
      {"ranks", ranks},
      {"fits", plan.fits},
      {"unfit", plan.fits ? Json(nullptr) : Json(plan.unfit)},
      {"step_s", plan.step.step_s},
      {"step_tokens", plan.step.tokens},
      {"parts_s", parts},
      {"waits_s", waits},
      {"tokens_per_s", plan.tokens_per_s},
      {"mfu", plan.mfu},
      {"exposed_comm_s", plan.step.exposed_comm_s},
      {"bubble", plan.step.bubble},
      {"run",
       {{"steps", run.steps},
        {"tokens", run.tokens},
        {"hours", run.hours},
        {"kwh", known(run.kwh)},
        {"cost", known(run.cost)},
        {"tokens_per_parameter", static_cast<double>(run.tokens) / static_cast<double>(plan.parameters)}}},
      {"refused", plan.refused.empty() ? Json(nullptr) : Json(plan.refused)},
      {"hardware", target.hardware.name}};
  return json.dump();
}

std::string plan_trace(const Plan& plan) {
  std::string lines;
  for (const RankTimeline& timeline : plan.schedule.timelines) {
    const RankProgram& program = *plan.programs.programs[static_cast<size_t>(timeline.rank)];
    ChromeTrace trace(timeline.rank);
    for (const TimelineSpan& span : timeline.spans) {
      const bool is_operation = span.track == TimelineSpan::Track::kOperation;
      const bool is_wait = span.track == TimelineSpan::Track::kWait;
      trace.add(is_operation ? fmt::format("group {}", span.group) : "rank",
                (is_wait ? "wait: " : "") + program.names[static_cast<size_t>(span.name)], span.begin_s,
                span.end_s);
    }
    lines += trace.lines();
  }
  const size_t last = lines.find_last_of(',');
  return "[\n" + (last == std::string::npos ? lines : lines.substr(0, last)) + "\n]\n";
}

}  // namespace ingot
