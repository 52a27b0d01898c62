#!/usr/bin/env bash
# Measures Ingot on a GPU, from a folder that bench/gpu/pack.sh made:
#   FOLDER/run.sh OUT PHASE     PHASE: A, B, C, M or Q (bench/gpu/phases.py says what each measures)
# Each phase ends within ten minutes, writes every figure to OUT/results.jsonl the moment it is measured, and goes on
# where it stopped when it is called again with the same OUT. OUT/summary.md has the tables. It exits with 1 if a test or a
# comparison failed, with 77 if there is no GPU. It changes no setting of the card.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if (($# < 2)); then
  echo "usage: run.sh OUT PHASE; PHASE is A, B, C, M or Q" >&2
  exit 2
fi
python=$(command -v python3) || {
  echo "run.sh: python3 is not installed" >&2
  exit 1
}

# Finds CUDA's libraries: those of Python packages, so that PyTorch and Ingot use the same, then the toolkit's. The
# programs know where their other libraries are.
folders=$("$python" - <<'PY'
import glob, site, sys
roots = site.getsitepackages() if hasattr(site, "getsitepackages") else sys.path
print(":".join(folder for root in roots for folder in sorted(glob.glob(root + "/nvidia/*/lib"))))
PY
)
for folder in /usr/local/cuda/lib64 /usr/local/cuda/lib; do [[ ! -d $folder ]] || folders+=:$folder; done
export INGOT_GIVEN_LIBRARY_PATH=${LD_LIBRARY_PATH-} # for PyTorch, which finds its own libraries
export LD_LIBRARY_PATH=${folders#:}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
# The choice of cuBLASLt's kernels is kept beside the results, so that later phases use it.
mkdir -p "$1"
XDG_CACHE_HOME=$(cd "$1" && pwd)/cache
export XDG_CACHE_HOME
exec "$python" "$here/phases.py" "$@"
