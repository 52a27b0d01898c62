#include "ingot/parallel/comm_reducer.h"

#include <algorithm>

namespace ingot {

// Doubles travel as 64-bit integers, which a communicator copies unchanged.
std::span<const double> CommReducer::gather(std::span<double> values, const char* name) {
  static_assert(sizeof(double) == sizeof(int64_t));
  const int64_t n = std::ssize(values);
  all_.resize(values.size() * static_cast<size_t>(group_.size()));
  group_.all_gather_into(name, Tensor(all_.data(), DType::i64, {group_.size() * n}),
                         Tensor(values.data(), DType::i64, {n}));
  return all_;
}

void CommReducer::sum(std::span<double> values) {
  const std::span<const double> all = gather(values, "sum");
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = all[i];
    for (size_t k = i + values.size(); k < all.size(); k += values.size()) values[i] += all[k];
  }
}

void CommReducer::max(std::span<double> values) {
  const std::span<const double> all = gather(values, "max");
  for (size_t k = 0; k < all.size(); ++k)
    values[k % values.size()] = std::max(values[k % values.size()], all[k]);
}

void CommReducer::broadcast(std::string& text, int from) {
  int64_t length = std::ssize(text);
  group_.broadcast("length", Tensor(&length, DType::i64, {1}), from);
  text.resize(static_cast<size_t>(length));
  group_.broadcast("text", Tensor(text.data(), DType::u8, {length}), from);
}

}  // namespace ingot
