#!/usr/bin/env bash
# Builds the program, the GPU tests and the benchmarks for another machine, and packs them together with the libraries that
# they need:
#   bench/gpu/pack.sh [FOLDER]     (default: build/gpu)
# The other machine needs an x86-64 CPU with AVX2, Linux with a glibc at least as new as this one's (check_pack.sh says which
# it may be), a driver for CUDA 13, cuBLASLt and Python 3.11. FOLDER/run.sh OUT works and FOLDER/run.sh OUT numbers run them there.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=${1:-build/gpu}
limit_kib=$((36 << 10))  # with the sources (13 MiB) and a torch-cache.tar.gz (16 MiB at most) it stays below 64 MiB
programs=(ingot ingot_cuda_tests device_bench gpu_probe nccl_one_rank)
tools/build.sh cuda-carry "${programs[@]}"
files=$(mktemp -d)
trap 'rm -rf "$files"' EXIT
mkdir "$files/lib"
for program in "${programs[@]}"; do
  built=$(find build/cuda-carry -name "$program" -type f -executable)
  cp "$built" "$files/"
  strip "$files/$program"
  # Packs the libraries that a plain system lacks, and the C++ runtime. It leaves out the C library, which
  # must be the other machine's own; CUDA's libraries do not appear here, because they are loaded at run time.
  ldd "$built" | awk '$3 ~ /^\// {print $3}' |
    { grep -vE '/lib(c|m|dl|rt|pthread)\.so' || true; } |
    while read -r library; do cp -L "$library" "$files/lib/"; done
done
cp bench/gpu/run.sh bench/gpu/*.py bench/gpu/*.toml bench/pytorch_model.py "$files/"
bench/gpu/check_pack.sh "$files"
rm -rf "$folder"
mkdir -p "$folder"
cp bench/gpu/run.sh "$folder/"
tar --create --xz --file="$folder/pack.tar.xz" --directory="$files" .
size_kib=$(du -sk "$folder" | cut -f1)
printf 'pack: %s KiB in %s, %s KiB unpacked\n' "$size_kib" "$folder" "$(du -sk "$files" | cut -f1)"
if ((size_kib > limit_kib)); then
  echo "pack: more than $limit_kib KiB" >&2
  exit 1
fi
