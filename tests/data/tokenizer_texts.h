// Random texts for tokenizer tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ingot/core/philox.h"
#include "ingot/data/tokenizer/unicode.h"

namespace ingot::test {

// A generator of random numbers: dice(n) returns a number below n.
class Dice {
 public:
  explicit Dice(uint64_t seed) : key_{.seed = seed} {}
  uint32_t operator()(uint32_t n) { return random_word(key_, next_++) % n; }

 private:
  RandomKey key_;
  uint64_t next_ = 0;
};

// Returns characters that the pre-tokenisation patterns distinguish. Common ones occur several times.
inline std::vector<uint32_t> pattern_alphabet() {
  std::vector<uint32_t> alphabet = {'a',    'b',   's',    't',  'l',    'v',    'e',     'r',    'd',   'm',
                                    'A',    'S',   'T',    'L',  'Z',    ' ',    ' ',     ' ',    '\n',  '\n',
                                    '\r',   '\t',  '\'',   '\'', '/',    '.',    '-',     '_',    '1',   '9',
                                    '(',    0x17F, 0xE9,   0xC9, 0x1C5,  0x2B0,  0x4E2D,  0x301,  0x663, 0xB2,
                                    0x2167, 0xA0,  0x3000, 0x85, 0x200D, 0x20AC, 0x1F44D, 0x1D49C};
  return alphabet;
}

inline std::string random_text(Dice& dice, const std::vector<uint32_t>& alphabet, uint32_t characters) {
  std::string text;
  for (uint32_t i = 0; i < characters; ++i)
    append_utf8(alphabet[dice(static_cast<uint32_t>(alphabet.size()))], text);
  return text;
}

inline std::string random_bytes(Dice& dice, uint32_t bytes) {
  std::string text;
  for (uint32_t i = 0; i < bytes; ++i) text.push_back(static_cast<char>(dice(256)));
  return text;
}

}  // namespace ingot::test
