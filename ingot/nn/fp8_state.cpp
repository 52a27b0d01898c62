#include "ingot/nn/fp8_state.h"

#include <algorithm>
#include <cmath>

#include "ingot/core/error.h"
#include "ingot/core/float8.h"

namespace ingot {

Fp8State::Fp8State(const std::vector<std::string>& names, int64_t history, int64_t margin)
    : history_(history), margin_factor_(std::ldexp(1.0f, -static_cast<int>(margin))) {
  for (const std::string& name : names) entries_.push_back({name, {}});
  amaxes_.resize(names.size() * static_cast<size_t>(history));
}

Tensor Fp8State::next_amax(int tensor) {
  return device_ ? device_->place(tensor).fresh : Tensor(&(*this)[tensor].amax, DType::f32, {1});
}

Fp8Stats Fp8State::total() const {
  Fp8Stats all;
  for (const Entry& entry : entries_) all.add(entry.stats);
  return all;
}

float Fp8State::delayed_scale(int tensor, DType format) const {
  const auto first = amaxes_.begin() + tensor * history_;
  const float amax = history_ > 0 ? *std::max_element(first, first + history_) : 0;
  return amax > 0 ? float8_max(format) / amax * margin_factor_ : 0;
}

bool Fp8State::can_follow_history() const {
  for (int t = 0; t < static_cast<int>(entries_.size()); ++t)
    if (delayed_scale(t, DType::f8e4m3) <= 0) return false;
  return history_ > 0;
}

// Fp8Linear calls its tensors NAME.x, NAME.w and NAME.dy. The head sets its scales itself, in every step.
void Fp8State::follow_history(bool follows, Stream& stream) {
  if (!device_ || history_ == 0) return;
  follows_history_ = follows;
  if (!follows) is_history_sent_ = false;
  if (!follows || is_history_sent_) return;
  std::vector<float> limits;
  for (const Entry& entry : entries_)
    limits.push_back(float8_max(entry.name.ends_with(".dy") ? DType::f8e5m2 : DType::f8e4m3) *
                     margin_factor_);
  device_->set_history(amaxes_, limits, stream);
  is_history_sent_ = true;
}

void Fp8State::next_scales(const Tensor& factor, Stream& stream) {
  if (follows_history_) device_->next_scales(factor, stream);
}

void Fp8State::begin_step() {
  for (Entry& entry : entries_) entry.stats = {};
}

void Fp8State::end_step() {
  for (size_t t = 0; history_ > 0 && t < entries_.size(); ++t) {
    if (!std::isfinite(entries_[t].stats.amax)) continue;
    const auto first = amaxes_.begin() + static_cast<int64_t>(t) * history_;
    std::shift_left(first, first + history_, 1);
    *(first + history_ - 1) = entries_[t].stats.amax;
  }
}

void Fp8State::add(int tensor, const Fp8Stats& stats) {
  if (device_)
    elements_[static_cast<size_t>(tensor)] += stats.elements;
  else
    (*this)[tensor].add(stats);
}

void Fp8State::bring_to_device(Stream& stream, size_t slots) {
  if (stream.device != Device::kCuda || entries_.empty()) return;
  device_.emplace(std::ssize(entries_), slots);
  elements_of_slots_.resize(slots);
  elements_.resize(entries_.size());
}

void Fp8State::hold_weights(const std::vector<Weight>& weights, const Stream& stream) {
  if (stream.device != Device::kCuda || weights.empty()) return;
  const auto lay_out = [&](Arena& arena) {
    std::vector<Fp8Device::Operand> held(entries_.size());
    for (const Weight& weight : weights) {
      Fp8Device::Operand& operand = held[static_cast<size_t>(weight.tensor)];
      operand =
          Fp8Device::operand(arena, weight.shape, DType::f8e4m3, Fp8Scaling::kTensor, Fp8Layouts::kBoth);
      if (device_) operand.inverse = device_->place(weight.tensor).inverse;
    }
    return held;
  };
  Arena measure("fp8 weights", Memory::kDevice);
  lay_out(measure);
  held_arena_.emplace("fp8 weights", measure.peak_bytes(), Memory::kDevice, stream.backing);
  held_ = lay_out(*held_arena_);
}

const Fp8Device::Operand* Fp8State::held(int tensor) const {
  if (held_.empty()) return nullptr;
  const Fp8Device::Operand& operand = held_[static_cast<size_t>(tensor)];
  return operand.codes ? &operand : nullptr;
}

void Fp8State::begin_step(Stream& stream) {
  if (!device_) return begin_step();
  std::ranges::fill(elements_, 0);
  device_->begin_step(stream);
}

void Fp8State::copy_to_host(size_t slot, Stream& stream) {
  if (!device_) return;
  device_->copy_to_host(slot, stream);
  elements_of_slots_[slot] = elements_;
}

void Fp8State::receive(size_t slot) {
  if (!device_) return;
  const std::vector<int64_t>& elements = elements_of_slots_.at(slot);
  INGOT_CHECK(!elements.empty(), "Fp8State: no counts were copied to slot {}", slot);
  for (size_t t = 0; t < entries_.size(); ++t) {
    entries_[t].stats = device_->counted(slot, static_cast<int>(t));
    entries_[t].stats.elements = elements[t];
  }
}

void Fp8State::add_elements(const std::vector<int64_t>& elements) {
  INGOT_CHECK(elements.size() == elements_.size(), "Fp8State: elements of {} tensors, not {}",
              elements.size(), elements_.size());
  for (size_t t = 0; t < elements.size(); ++t) elements_[t] += elements[t];
}

}  // namespace ingot
