#!/usr/bin/env bash
# Configures a CMake preset and builds the targets: tools/build.sh PRESET [TARGET...].
# Uses ccache where it is found, and as many jobs as there are cores (JOBS overrides).
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift
# The tests' precompiled headers hold neither times nor macros that a test defines.
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
