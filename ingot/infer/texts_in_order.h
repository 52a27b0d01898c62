// TextsInOrder puts the pieces of texts that are made at the same time in the order of the texts.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ingot {

class TextsInOrder {
 public:
  // Receives the pieces of text 0, then those of text 1, and so on. is_last is true for the last piece of a
  // text, which may be empty.
  using Sink = std::function<void(size_t text, std::string_view piece, bool is_last)>;

  TextsInOrder(size_t count, Sink sink) : sink_(std::move(sink)), waiting_(count) {}

  // Passes the piece on if all texts before its own have ended. Otherwise it waits for that.
  void add(size_t text, std::string_view piece, bool is_last);

 private:
  struct Waiting {
    std::string pieces;
    bool has_ended = false;
  };
  Sink sink_;
  std::vector<Waiting> waiting_;
  size_t first_ = 0;  // the first text that has not ended
};

}  // namespace ingot
