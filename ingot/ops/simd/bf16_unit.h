// Whether the processor's bf16 instruction pays.
#pragma once

namespace ingot {

// Returns true if VDPBF16PS multiplies bf16 numbers at a higher rate than the f32 instructions multiply f32: on AMD's processors
// that have it, at twice the rate. Intel's have it at half the rate of f32 (docs/benchmarks/matmul.md); those with
// AMX have a faster unit besides, which this function is not about.
inline bool has_fast_bf16_instruction() {
#if defined(__x86_64__)
  static const bool is_fast = __builtin_cpu_supports("avx512bf16") && !__builtin_cpu_is("intel");
  return is_fast;
#else
  return false;
#endif
}

}  // namespace ingot
