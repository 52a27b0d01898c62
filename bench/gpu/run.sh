#!/usr/bin/env bash
# Measures Ingot on a GPU, from a folder that bench/gpu/pack.sh made:
#   FOLDER/run.sh OUT works      (aim: 150 s)  does it work? It also compiles PyTorch's models for the second call.
#   FOLDER/run.sh OUT numbers    (aim: 450 s)  how fast is it? --torch-cache FILE takes what the first call has compiled.
#   FOLDER/run.sh OUT claims     (aim: 120 s)  the rows of docs/claims.md that `numbers` lacks
#   FOLDER/run.sh OUT several    (several GPUs)
# bench/gpu/rows.py has the rows and their limits. OUT/summary.md is made anew after every figure; OUT has at most 8 files. It
# exits with 1 if a row failed, with 77 if there is no GPU. It changes no setting of the card.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if (($# < 2)); then
  echo "usage: run.sh OUT works|numbers|claims|several [--torch-cache FILE]" >&2
  exit 2
fi
python=$(command -v python3) || {
  echo "run.sh: python3 is not installed" >&2
  exit 1
}
if [[ -e $here/pack.tar.xz ]]; then # unpacks it once
  [[ -e $here/unpacked ]] ||
    "$python" -W ignore -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$here/pack.tar.xz" "$here/unpacked"
  here=$here/unpacked
fi

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
exec "$python" "$here/rows.py" "$@"
