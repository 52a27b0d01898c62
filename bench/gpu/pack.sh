#!/usr/bin/env bash
# Builds the program, the GPU tests and the benchmarks for another machine, and packs them with the libraries they
# need into a folder:
#   bench/gpu/pack.sh [FOLDER]     (default: build/gpu)
# That machine needs an x86-64 with AVX2, a Linux with a glibc no older than this one's, a driver for CUDA 13 and its
# cuBLASLt; bench/gpu/run.sh FOLDER runs them there.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=${1:-build/gpu}
limit_kib=$((56 << 10))  # 64 MiB with the working tree beside it
tools/build.sh cuda-carry ingot ingot_cuda_tests device_bench
rm -rf "$folder"
mkdir -p "$folder/lib"
for program in ingot tests/ingot_cuda_tests bench/device_bench; do
  cp "build/cuda-carry/$program" "$folder/"
  strip "$folder/$(basename "$program")"
  # What no plain system has, and C++'s runtime. C's is that machine's own, and CUDA's libraries, which are loaded
  # where they are used.
  ldd "build/cuda-carry/$program" | awk '$3 ~ /^\// {print $3}' |
    { grep -vE '/lib(c|m|dl|rt|pthread)\.so' || true; } |
    while read -r library; do cp -L "$library" "$folder/lib/"; done
done
cp bench/gpu/run.sh bench/gpu/*.py bench/gpu/*.toml bench/pytorch_model.py "$folder/"
size_kib=$(du -sk "$folder" | cut -f1)
printf 'pack: %s KiB in %s\n' "$size_kib" "$folder"
if ((size_kib > limit_kib)); then
  echo "pack: more than $limit_kib KiB" >&2
  exit 1
fi
