#!/usr/bin/env bash
# Configures a CMake preset and builds the targets: tools/build.sh PRESET [TARGET...].
# Uses ccache if it is installed, and one job per core (JOBS overrides this).
# CI (the variable CI is set) makes warnings errors; a newer compiler's warning does not end a user's build.
# On a machine without an NVIDIA device, the first configuration of `release` leaves out the kernels, which
# take a minute to compile and could not run. INGOT_CUDA=ON compiles them, and a later build keeps the choice.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift
# This is safe: the tests' precompiled headers contain neither times nor macros that a test defines.
export CCACHE_SLOPPINESS=pch_defines,time_macros
log=$(mktemp)
trap 'rm -f "$log"' EXIT
printf 'build: configuring %s\n' "$preset"
cuda=()
if [[ "$preset" == release ]]; then
  if [[ -n "${INGOT_CUDA:-}" ]]; then
    cuda=(-DINGOT_CUDA="$INGOT_CUDA")
  elif [[ ! -e build/release/CMakeCache.txt && ! -e /dev/nvidiactl && ! -e /dev/dxg ]]; then
    cuda=(-DINGOT_CUDA=OFF)
    echo "build: this machine has no NVIDIA device: devices are left out (INGOT_CUDA=ON compiles them)"
  fi
fi
if ! cmake --preset "$preset" "${cuda[@]}" ${CI:+-DCMAKE_COMPILE_WARNING_AS_ERROR=ON} -DCMAKE_CXX_COMPILER_LAUNCHER="$(command -v ccache || true)" >"$log" 2>&1; then
  cat "$log"
  exit 1
fi
printf 'build: compiling %s %s\n' "$preset" "$*"
targets=()
if [[ $# -gt 0 ]]; then targets=(--target "$@"); fi
cmake --build --preset "$preset" --parallel "${JOBS:-$(nproc)}" "${targets[@]}"
