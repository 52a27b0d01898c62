#!/usr/bin/env bash
# Configures a CMake preset and builds the targets: tools/build.sh PRESET [TARGET...].
# Uses ccache if it is installed, and one job per core (JOBS overrides this).
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift
# This is safe: the tests' precompiled headers contain neither times nor macros that a test defines.
export CCACHE_SLOPPINESS=pch_defines,time_macros
log=$(mktemp)
trap 'rm -f "$log"' EXIT
printf 'build: configuring %s\n' "$preset"
if ! cmake --preset "$preset" -DCMAKE_CXX_COMPILER_LAUNCHER="$(command -v ccache || true)" >"$log" 2>&1; then
  cat "$log"
  exit 1
fi
printf 'build: compiling %s %s\n' "$preset" "$*"
targets=()
if [[ $# -gt 0 ]]; then targets=(--target "$@"); fi
cmake --build --preset "$preset" --parallel "${JOBS:-$(nproc)}" "${targets[@]}"
