#!/usr/bin/env bash
# Configures a CMake preset and builds the targets: tools/build.sh PRESET [TARGET...].
# Uses ccache where it is found, and as many jobs as there are cores (JOBS overrides).
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift
launcher=()
if command -v ccache >/dev/null; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
printf 'build: configuring %s\n' "$preset"
cmake --preset "$preset" "${launcher[@]}" -Wno-dev >"build-$preset.log" 2>&1 || { cat "build-$preset.log"; rm -f "build-$preset.log"; exit 1; }
rm -f "build-$preset.log"
printf 'build: compiling %s %s\n' "$preset" "$*"
targets=()
[[ $# -gt 0 ]] && targets=(--target "$@")
cmake --build --preset "$preset" --parallel "${JOBS:-$(nproc)}" "${targets[@]}"
