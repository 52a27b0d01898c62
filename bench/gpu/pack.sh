#!/usr/bin/env bash
# Builds the GPU tests and benchmarks for another machine and packs them with the libraries they need into a folder:
#   bench/gpu/pack.sh [FOLDER]     (default: build/gpu)
# That machine needs a driver for CUDA 13 and an x86-64 Linux with a glibc no older than this one's;
# bench/gpu/run.sh FOLDER runs them there.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=${1:-build/gpu}
tools/build.sh cuda-carry ingot_cuda_tests device_bench
rm -rf "$folder"
mkdir -p "$folder/lib"
for program in tests/ingot_cuda_tests bench/device_bench; do
  cp "build/cuda-carry/$program" "$folder/"
  strip "$folder/$(basename "$program")"
  # What no plain system has. The C and C++ runtimes and CUDA's libraries are that machine's own.
  ldd "build/cuda-carry/$program" | awk '$3 ~ /^\// {print $3}' |
    { grep -vE '/lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|cuda|cublas|cublasLt|cudnn|nccl)\.so' || true; } |
    while read -r library; do cp -L "$library" "$folder/lib/"; done
done
cp bench/gpu/run.sh bench/gpu/torch_baseline.py bench/pytorch_model.py "$folder/"
du -sh "$folder"
