// Whether the processor's bf16 instruction pays.
#pragma once

namespace ingot {

// Returns true if the processor multiplies bf16 numbers faster by VDPBF16PS than f32 numbers by f32 instructions, as AMD's do.
// On Intel's it has half the rate of f32 (docs/benchmarks/matmul.md). This function does not ask for AMX.
inline bool has_fast_bf16_instruction() {
#if defined(__x86_64__)
  static const bool is_fast = __builtin_cpu_supports("avx512bf16") && !__builtin_cpu_is("intel");
  return is_fast;
#else
  return false;
#endif
}

}  // namespace ingot
