#!/usr/bin/env bash
# Runs everything that needs a GPU, in less than ten minutes, from a folder that bench/gpu/pack.sh made:
#   FOLDER/run.sh [OUT]     writes the log, a summary and JSON to OUT (default: gpu-results)
# It runs the device tests, 200 steps of small models on CPU and GPU, and measures the speed of the trainer
# (also with FP8 linears and as CUDA graphs) beside PyTorch's, the heads, and the bandwidth of every kernel
# beside a memory copy. In the remaining time it runs the memory and race checkers on the small tests. It
# prints a table at the end and exits with 1 if a test, the comparison or a checker failed, with 77 if
# there is no GPU. It changes no setting of the card.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-gpu-results}
limit_s=590
python=$(command -v python3 || true)

# Finds CUDA's libraries: those of Python packages, so that PyTorch and Ingot use the same, else those of the
# toolkit. The programs know where their other libraries are.
folders=
if [[ -n $python ]]; then
  folders=$("$python" - <<'PY'
import glob, site, sys
roots = site.getsitepackages() if hasattr(site, "getsitepackages") else sys.path
for root in roots:
    for folder in sorted(glob.glob(root + "/nvidia/*/lib")):
        print(":" + folder, end="")
PY
)
fi
for folder in /usr/local/cuda/lib64 /usr/local/cuda/lib; do [[ -d $folder ]] && folders+=:$folder; done
given=${LD_LIBRARY_PATH-}  # for PyTorch, which finds its own libraries
export LD_LIBRARY_PATH=${folders#:}${given:+:$given}

if ! said=$("$here/ingot_cuda_tests" --gtest_filter=-'*' 2>&1); then
  printf 'run.sh: nothing was run: %s\n' "$said" >&2
  exit 77
fi
# Writes at most eight files to OUT, because the tool that fetches them takes no more, and writes them as
# they come, because it may end this script early.
mkdir -p "$out"
log=$out/log.txt
: >"$log"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

summary=()
failed=0
# note NAME WORDS... adds a line to the summary.
note() {
  summary+=("$(printf '%-22s %s' "$1" "${*:2}")")
  printf '%s\n' "${summary[@]}" >"$out/summary.txt"
}
# step NAME LIMIT_S COMMAND... runs the command and appends its output to the log. It ends the command
# after LIMIT_S or when the total time is used up.
step() {
  local name=$1 limit=$2 start=$SECONDS status
  shift 2
  ((limit > limit_s - SECONDS)) && limit=$((limit_s - SECONDS))
  if ((limit < 5)); then
    note "$name" "SKIPPED  (no time left)"
    return
  fi
  printf '\n=== %s\n' "$name" | tee -a "$log"
  timeout "$limit" "$@" 2>&1 | tee -a "$log" | tail -n 60
  status=${PIPESTATUS[0]}
  local took=$((SECONDS - start))
  case $status in
    0) note "$name" "passed   ${took}s" ;;
    77) note "$name" "SKIPPED  ${took}s" ;;
    124) note "$name" "TOO LONG ${took}s"; failed=1 ;;
    *) note "$name" "FAILED   ${took}s (status $status)"; failed=1 ;;
  esac
}

device=$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>&1 | head -1)
printf '%s\n' "$device" | tee -a "$log"
"$here/ingot" doctor | tee -a "$log"
step tests 120 "$here/ingot_cuda_tests" --gtest_brief=1
if [[ -n $python ]]; then
  step parity 120 "$python" "$here/parity.py" "$here/ingot" --json "$out/parity.json" --out "$work/parity"
else
  note parity "SKIPPED  (no python3)"
fi
for model in gpt2-124m llama-350m llama-1.3b; do
  step "ingot-$model" 60 "$here/ingot" bench step "$here/$model.toml" --steps 8 --trace "$work/$model-trace.json"
done
for model in gpt2-124m llama-350m; do  # the same steps, run as a CUDA graph
  step "graph-$model" 30 "$here/ingot" bench step "$here/$model.toml" --steps 8 --set train.graph=true
done
(cd "$work" && tar -czf traces.tar.gz ./*-trace.json 2>/dev/null) && cp "$work/traces.tar.gz" "$out/"
step kernels 90 "$here/device_bench" "$out/kernels.json"
if [[ -n $python ]]; then step torch 240 env LD_LIBRARY_PATH="$given" "$python" "$here/torch_baseline.py" --json "$out/torch.json"; fi
step fp8-llama-1.3b 45 "$here/ingot" bench step "$here/llama-1.3b.toml" --steps 8 --set precision.fp8=tensorwise
step deterministic 30 "$here/ingot" bench step "$here/gpt2-124m.toml" --steps 8 --set train.deterministic=true
for graph in false true; do  # with Muon and an FP8 head
  step "hybrid-124m-graph-$graph" 40 "$here/ingot" bench step hybrid-124m --steps 6 --set train.device=cuda \
    --set train.batch_size=16 --set train.grad_accum=4 --set train.graph=$graph
done
for precision in bf16 fp8; do  # compares the dense, chunked and recomputed head
  step "head-$precision" 30 "$here/ingot" bench head --device cuda --tokens 32768 --precision "$precision"
done
if command -v compute-sanitizer >/dev/null; then
  # Only a few tests of every kernel: the checkers slow kernels down more than tenfold.
  small='Sizes/CudaNorm.*/*_5x257_*:Sizes/CudaNorm.*/*_5x768_*:Sizes/CudaActivation.*/bf16_2x520:Shapes/CudaHeads.*'
  small+=':Sizes/CudaEmbedding.*/f32_2x5*:Shapes/CudaAttention.*:CudaDropout.*:CudaCast.*:Kinds/CudaCrossEntropy.*:Formats/CudaFp8.*:CudaUpdate/*'
  small+=':CudaResidualAdd.*:CudaKahan.*:CudaSwap.*:CudaBf16Masters.*:CudaLossSums.*:CudaVerdict.*:CudaGraph.*'
  for tool in memcheck racecheck initcheck synccheck; do
    step "$tool" 60 compute-sanitizer --tool "$tool" --error-exitcode 9 "$here/ingot_cuda_tests" --gtest_brief=1 \
      --gtest_filter="$small"
  done
else
  note checkers "SKIPPED  (no compute-sanitizer)"
fi

printf '\n=== summary on %s\n' "$device"
grep -hE '^parity|% of the copy|TFLOP/s|tok/s|tokens/s|^(dense|chunked|recompute) ' "$log" || true
cat "$out/summary.txt"
exit $failed
