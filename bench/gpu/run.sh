#!/usr/bin/env bash
# Everything that needs a GPU, in one go of under ten minutes, from a folder that bench/gpu/pack.sh made:
#   FOLDER/run.sh [OUT]     logs and JSON go to OUT (default: gpu-results)
# Runs the device tests, the memory and race checkers on the small ones, the bandwidth of every kernel beside a copy
# of memory, and the PyTorch baseline. Ends with a table; 1 if a test or a checker failed. It changes no setting of
# the card.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-gpu-results}
mkdir -p "$out"
python=$(command -v python3 || true)

# CUDA's libraries: the toolkit's, else those of Python packages.
folders=$here/lib
for folder in /usr/local/cuda/lib64 /usr/local/cuda/lib; do [[ -d $folder ]] && folders+=:$folder; done
if [[ -n $python ]]; then
  folders+=$("$python" - <<'PY'
import glob, site, sys
roots = site.getsitepackages() if hasattr(site, "getsitepackages") else sys.path
for root in roots:
    for folder in sorted(glob.glob(root + "/nvidia/*/lib")):
        print(":" + folder, end="")
PY
)
fi
export LD_LIBRARY_PATH=$folders${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

summary=()
failed=0
# step NAME LIMIT_S COMMAND...: the log goes to OUT/NAME.log.
step() {
  local name=$1 limit_s=$2 start=$SECONDS status
  shift 2
  printf '\n=== %s\n' "$name"
  timeout "$limit_s" "$@" 2>&1 | tee "$out/$name.log" | tail -n 60
  status=${PIPESTATUS[0]}
  case $status in
    0) summary+=("$(printf '%-22s passed   %4ss' "$name" $((SECONDS - start)))") ;;
    77) summary+=("$(printf '%-22s SKIPPED  %4ss' "$name" $((SECONDS - start)))") ;;
    *) summary+=("$(printf '%-22s FAILED   %4ss (status %s)' "$name" $((SECONDS - start)) "$status")"); failed=1 ;;
  esac
}

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>&1 | tee "$out/device.log"
step tests 120 "$here/ingot_cuda_tests" --gtest_brief=1
if command -v compute-sanitizer >/dev/null; then
  # A few of every kernel: the checkers slow a kernel down tenfold and more.
  small='Sizes/CudaNorm.*/*_5x257_*:Sizes/CudaNorm.*/*_5x768_*:Sizes/CudaActivation.*/bf16_2x520:Shapes/CudaHeads.*'
  small+=':Sizes/CudaEmbedding.*/f32_2x5*:Shapes/CudaAttention.*:CudaDropout.*:CudaCast.*:Kinds/CudaCrossEntropy.*:Formats/CudaFp8.*:CudaUpdate/*'
  for tool in memcheck racecheck initcheck synccheck; do
    step "$tool" 100 compute-sanitizer --tool "$tool" --error-exitcode 9 "$here/ingot_cuda_tests" --gtest_brief=1 \
      --gtest_filter="$small"
  done
else
  summary+=("$(printf '%-22s SKIPPED  (no compute-sanitizer)' checkers)")
fi
step kernels 90 "$here/device_bench" "$out/kernels.json"
if [[ -n $python ]]; then step torch 240 "$python" "$here/torch_baseline.py" --json "$out/torch.json"; fi

printf '\n=== summary on %s\n' "$(head -1 "$out/device.log")"
grep -hE '% of the copy|TFLOP/s|tokens/s' "$out"/*.log || true
printf '%s\n' "${summary[@]}" | tee "$out/summary.txt"
exit $failed
