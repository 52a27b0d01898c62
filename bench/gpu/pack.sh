#!/usr/bin/env bash
# Builds the program, the GPU tests and the benchmarks for another machine, and packs them into a folder
# together with the libraries that they need:
#   bench/gpu/pack.sh [FOLDER]     (default: build/gpu)
# The other machine needs an x86-64 CPU with AVX2, Linux with a glibc at least as new as this one's, a
# driver for CUDA 13, cuBLASLt and Python 3. FOLDER/run.sh OUT PHASE runs them there.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=${1:-build/gpu}
limit_kib=$((56 << 10))  # the limit is 64 MiB together with the working tree
tools/build.sh cuda-carry ingot ingot_cuda_tests device_bench
rm -rf "$folder"
mkdir -p "$folder/lib"
for program in ingot tests/ingot_cuda_tests bench/device_bench; do
  cp "build/cuda-carry/$program" "$folder/"
  strip "$folder/$(basename "$program")"
  # Packs the libraries that a plain system lacks, and the C++ runtime. It leaves out the C library, which
  # must be the other machine's own; CUDA's libraries do not appear here, because they are loaded at run time.
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
