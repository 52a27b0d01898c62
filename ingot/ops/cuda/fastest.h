// Times kernels on the device against each other. Internal to ops; included by files that call CUDA
// libraries.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ingot/core/cuda/cuda_device.h"
#include "ingot/core/error.h"
#include "ingot/ops/cuda/kernel_choices.h"

namespace ingot::cuda {

// Returns the choices among kernels of this version of the library on this machine's devices.
inline KernelChoices& choices_of(const std::string& library, size_t version) {
  std::string device = devices().front().name;
  std::ranges::replace_if(
      device, [](char letter) { return letter == ' ' || letter == '/'; }, '-');
  return KernelChoices::named(fmt::format("{}-{}-{}", library, device, version));
}

// Returns the fastest of candidates 0 to count - 1; nullopt if none can run. run(i) submits candidate i to
// the stream, or returns false, without side effects, if it cannot run. Every candidate runs once without
// being timed. Then they take turns, kRounds times, so that a change of the device's clock meets all of them.
// REQUIRES: the stream is not captured.
inline std::optional<size_t> fastest(size_t count, const std::function<bool(size_t)>& run, Stream& stream) {
  constexpr size_t kRounds = 5;
  std::vector<size_t> able;
  for (size_t i = 0; i < count; ++i)
    if (run(i)) able.push_back(i);
  if (able.size() <= 1) return able.empty() ? std::nullopt : std::optional(able.front());
  std::vector<Event> events(kRounds * able.size() + 1);
  events[0].record(stream);
  for (size_t turn = 0; turn + 1 < events.size(); ++turn) {
    run(able[turn % able.size()]);
    events[turn + 1].record(stream);
  }
  events.back().synchronize();
  std::vector<std::vector<double>> times_s(able.size());
  for (size_t turn = 0; turn + 1 < events.size(); ++turn)
    times_s[turn % able.size()].push_back(events[turn + 1].seconds_since(events[turn]));
  return able[least_median(times_s)];
}

// Returns a candidate's run for fastest(): submit(i) without its Errors, which drop the candidate and leave
// their text in `error`.
inline std::function<bool(size_t)> without_errors(std::function<void(size_t)> submit, std::string& error) {
  return [submit = std::move(submit), &error](size_t i) {
    try {
      submit(i);
      return true;
    } catch (const Error& refusal) {
      error = refusal.what();
      return false;
    }
  };
}

}  // namespace ingot::cuda
