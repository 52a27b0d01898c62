#!/usr/bin/env bash
# Starts a folder of bench/gpu/pack.sh in a Debian 13 that has Python and the CUDA libraries of PyTorch 2.11's wheels, and
# nothing else: `ingot doctor` finds the libraries, and `run.sh OUT works` gets as far as it can without a GPU.
#   bench/gpu/try_pack.sh [FOLDER [ROOT]]     (default: build/gpu, build/pack-root)
# It must be run as root. The first time it makes ROOT, with debootstrap and pip (3 GB).
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=$(realpath "${1:-build/gpu}") root=$(realpath -m "${2:-build/pack-root}")
if [[ ! -e $root/usr/bin/python3 ]]; then
  mkdir -p "$(dirname "$root")"
  debootstrap --variant=minbase --include=python3 trixie "$root" >"$root.log"
fi
site=$root/usr/local/lib/python3.13/dist-packages
if [[ ! -e $site/nvidia ]]; then
  pip install --quiet --root-user-action=ignore --no-deps --only-binary=:all: --python-version 3.13 --platform manylinux_2_27_x86_64 \
    --platform manylinux_2_18_x86_64 --platform manylinux2014_x86_64 --target "$site" \
    nvidia-cublas==13.1.0.3 nvidia-cudnn-cu13==9.19.0.56 nvidia-nccl-cu13==2.28.9 'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-nvrtc==13.0.*'
fi
rm -rf "$root/pack" "$root/out"
cp -r "$folder" "$root/pack"
status=0
unshare --mount --pid --fork bash -c '
  mount -t proc proc "$1/proc" && exec chroot "$1" env -i PATH=/usr/bin:/bin /pack/run.sh /out works' _ "$root" || status=$?
sed -n 's/^- //p' "$root/out/summary.md"
if ((status != 77)); then
  echo "try_pack: run.sh ended with $status, not with 77 for want of a GPU" >&2
  exit 1
fi
for library in cuBLASLt cuDNN NCCL; do
  grep -q "cuda libraries: .*$library" "$root/out/summary.md" || {
    echo "try_pack: doctor does not find $library" >&2
    exit 1
  }
done
