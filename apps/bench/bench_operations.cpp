#include "apps/bench/bench_operations.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

Json operations_of(const OperationTimes& own, int rank) {
  std::vector<const CommLog::Event*> order;
  for (const CommLog::Event& event : own.events) order.push_back(&event);
  std::ranges::sort(order, {}, &CommLog::Event::number);
  Json operations = Json::array();
  for (const CommLog::Event* event : order) {
    // An operation belongs to the last step that began before it.
    const auto next = std::ranges::upper_bound(own.begins, event->number, {}, &StepBegin::number);
    const auto step = std::max<std::ptrdiff_t>(next - own.begins.begin() - 1, 0);
    const auto seconds = [&](CommLog::Clock::time_point time) {
      return std::chrono::duration<double>(time - own.begins[static_cast<size_t>(step)].time).count();
    };
    operations.push_back({{"rank", rank},
                          {"step", step},
                          {"group", event->group},
                          {"name", event->name},
                          {"kind", kind_name(event->kind)},
                          {"bytes", event->bytes},
                          {"peer", event->peer},
                          {"start_s", seconds(event->begun)},
                          {"end_s", seconds(event->ended)},
                          {"wait_s", event->waited_s()}});
  }
  return operations;
}

}  // namespace

void print_operations(const OperationTimes& own, const std::string& layout, double step_s,
                      const std::vector<double>& losses, Communicator& world) {
  Json all{{"ranks", world.size()}, {"layout", layout}, {"step_s", step_s}, {"losses", losses}};
  Json& operations = all["operations"] = Json::array();
  for (int rank = 0; rank < world.size(); ++rank) {
    std::string text = rank == world.rank() ? operations_of(own, rank).dump() : std::string();
    world.broadcast_text(text, rank);
    if (world.rank() != 0) continue;
    for (Json& operation : Json::parse(text)) operations.push_back(std::move(operation));
  }
  if (world.rank() == 0) fmt::print("{}\n", all.dump());
}

}  // namespace ingot
