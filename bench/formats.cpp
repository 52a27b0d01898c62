// Prints what the number formats can hold, found by rounding f32 values with Ingot's own types: one line per
// format, separated by tabs: name, bits, exponent bits, mantissa bits, largest, smallest normal, smallest,
// decimal digits. bench/plan_tables.py makes a table of it.
#include <fmt/core.h>

#include <bit>
#include <cmath>
#include <cstdint>

#include "ingot/core/dtype.h"
#include "ingot/core/float16.h"
#include "ingot/core/float8.h"

namespace {

// The format of NVIDIA's tensor cores: f32 with 10 bits of mantissa.
struct Tf32 {
  uint32_t bits;
  explicit Tf32(float value) : bits(std::bit_cast<uint32_t>(value)) {
    constexpr uint32_t kDropped = 23 - 10;
    if (std::isfinite(value))
      bits = (bits + (1u << (kDropped - 1)) - 1 + (bits >> kDropped & 1u)) >> kDropped << kDropped;
  }
  explicit operator float() const { return std::bit_cast<float>(bits); }
};

template <typename T>
bool holds(double value) {
  const auto narrow = static_cast<float>(value);
  const double back = static_cast<float>(T(narrow));
  return static_cast<double>(narrow) == value && std::isfinite(back) && back == value;
}

template <typename T>
void print(const char* name, int bits) {
  int mantissa = 0, top = 0, bottom = 0;
  while (holds<T>(1 + std::ldexp(1, -mantissa - 1))) ++mantissa;
  while (holds<T>(std::ldexp(1, top + 1))) ++top;
  while (holds<T>(std::ldexp(1, bottom - 1))) --bottom;
  double largest = std::ldexp(1, top);
  for (double step = std::ldexp(1, top - 1); step >= std::ldexp(1, top - mantissa); step /= 2)
    if (holds<T>(largest + step)) largest += step;
  const int normal = bottom + mantissa;  // numbers below it have fewer bits
  // Exponents from `normal` to `top`, and one code for numbers below.
  const int exponent = std::bit_width(static_cast<unsigned>(top - normal + 1));
  fmt::print("{}\t{}\t{}\t{}\t{:.4g}\t{:.3g}\t{:.3g}\t{:.1f}\n", name,
             bits > 0 ? bits : 1 + exponent + mantissa, exponent, mantissa, largest, std::ldexp(1, normal),
             std::ldexp(1, bottom), (mantissa + 1) * std::log10(2.0));
}

}  // namespace

int main() {
  print<float>("f32", 32);
  print<Tf32>("tf32", 0);
  print<ingot::bf16>("bf16", 16);
  print<ingot::f16>("f16", 16);
  print<ingot::f8e4m3>("f8e4m3", 8);
  print<ingot::f8e5m2>("f8e5m2", 8);
}
