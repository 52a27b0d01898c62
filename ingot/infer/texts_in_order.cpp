#include "ingot/infer/texts_in_order.h"

namespace ingot {

void TextsInOrder::add(size_t text, std::string_view piece, bool is_last) {
  if (text != first_) {
    waiting_[text].pieces += piece;
    waiting_[text].has_ended = is_last;
    return;
  }
  sink_(text, piece, is_last);
  while (is_last && ++first_ < waiting_.size()) {
    const Waiting next = std::exchange(waiting_[first_], {});
    is_last = next.has_ended;
    if (is_last || !next.pieces.empty()) sink_(first_, next.pieces, is_last);
  }
}

}  // namespace ingot
