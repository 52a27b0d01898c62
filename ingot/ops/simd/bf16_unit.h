// Detects processors whose bf16 instruction is worth using.
#pragma once

namespace ingot {

// Returns true if the processor multiplies bf16 numbers by VDPBF16PS faster than f32 numbers by f32
// instructions, as AMD's do. On Intel's, VDPBF16PS has half the rate of f32 (docs/benchmarks/matmul.md). The
// function does not check for AMX.
inline bool has_fast_bf16_instruction() {
#if defined(__x86_64__)
  static const bool is_fast = __builtin_cpu_supports("avx512bf16") && !__builtin_cpu_is("intel");
  return is_fast;
#else
  return false;
#endif
}

}  // namespace ingot
