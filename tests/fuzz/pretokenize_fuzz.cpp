#include <array>
#include <vector>

#include "ingot/data/tokenizer/pretokenize.h"

// The pieces cover any bytes, and splitting the text at the positions of find_cut does not change them.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (std::string_view name : ingot::Pretokenizer::names()) {
    const ingot::Pretokenizer pretokenizer(name);
    const auto split = [&](size_t begin, size_t end, std::vector<size_t>& all) {
      ingot::PieceReader reader(pretokenizer, text, begin, end);
      std::array<size_t, 3> ends;
      while (const size_t count = reader.next(ends))
        all.insert(all.end(), ends.begin(), ends.begin() + count);
    };
    std::vector<size_t> whole, parts;
    split(0, size, whole);
    if (size > 0 && whole.back() != size) __builtin_trap();
    for (size_t begin = 0; begin < size;) {
      const size_t end = pretokenizer.find_cut(text, begin + 1);
      split(begin, end, parts);
      begin = end;
    }
    if (whole != parts) __builtin_trap();
  }
  return 0;
}
