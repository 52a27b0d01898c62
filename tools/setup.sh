#!/usr/bin/env bash
# Installs what building Ingot needs on Debian 12 or Ubuntu 24.04, and nothing that is there already.
# With root or password-less sudo it installs; otherwise it prints the one line to run and ends with 1.
#   tools/setup.sh         what ./demo and ./check need
#   tools/setup.sh --ci    and what .ci/run needs: clang, clang-format, clang-tidy
set -euo pipefail

packages=(g++ cmake ninja-build pkg-config libfmt-dev libcli11-dev libtomlplusplus-dev nlohmann-json3-dev
          libpcre2-dev libxxhash-dev libgtest-dev libgmock-dev libbenchmark-dev libdnnl-dev
          libopenmpi-dev openmpi-bin ccache xz-utils gzip)
# Prose for ./demo and some tests. Without it ./demo trains on C++ headers and those tests are skipped.
optional=(bible-kjv)
[[ "${1:-}" == "--ci" ]] && packages+=(clang clang-format clang-tidy libclang-rt-14-dev python3 python3-venv)

say() { printf 'setup: %s\n' "$*"; }

if ! command -v dpkg >/dev/null || ! command -v apt-get >/dev/null; then
  say "this is no Debian or Ubuntu: please install the counterparts of: ${packages[*]}"
  # Whoever has them can go on: CMake names whatever is missing.
  command -v cmake >/dev/null && command -v ninja >/dev/null && command -v g++ >/dev/null && exit 0
  exit 1
fi

is_installed() { [[ "$(dpkg-query -W -f='${Status}' "$1" 2>/dev/null)" == "install ok installed" ]]; }
# Ubuntu 24.04 names another version of the compiler's runtime library.
is_known() { apt-cache show "$1" >/dev/null 2>&1; }

missing=()
for package in "${packages[@]}"; do is_installed "$package" || missing+=("$package"); done
wished=()
for package in "${optional[@]}"; do is_installed "$package" || wished+=("$package"); done
if [[ ${#missing[@]} -eq 0 && ${#wished[@]} -eq 0 ]]; then
  say "every package is there"
  exit 0
fi

if [[ $EUID -eq 0 ]]; then
  as_root=(env DEBIAN_FRONTEND=noninteractive)
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
  as_root=(sudo -n env DEBIAN_FRONTEND=noninteractive)
elif [[ ${#missing[@]} -eq 0 ]]; then
  say "every package that is needed is there; ${wished[*]} would be good too, and installing it needs root"
  exit 0
else
  say "these packages are missing, and installing them needs root. Run this line, then try again:"
  echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]} ${wished[*]}"
  exit 1
fi

if ! is_known libtomlplusplus-dev; then
  say "reading the package lists (apt-get update)"
  "${as_root[@]}" apt-get update -q || [[ ${#missing[@]} -eq 0 ]]
fi
wanted=()
for package in "${missing[@]}"; do
  # The sanitizer runtime is a package of its own on Debian 12 only.
  if [[ "$package" == libclang-rt-* ]] && ! is_known "$package"; then continue; fi
  wanted+=("$package")
done
if [[ ${#wanted[@]} -gt 0 ]]; then
  say "installing ${wanted[*]}"
  if ! "${as_root[@]}" apt-get install -y -q --no-install-recommends "${wanted[@]}"; then
    say "apt-get failed; reading the package lists and trying once more"
    "${as_root[@]}" apt-get update -q
    "${as_root[@]}" apt-get install -y -q --no-install-recommends "${wanted[@]}"
  fi
fi
for package in "${wished[@]}"; do
  say "installing $package"
  "${as_root[@]}" apt-get install -y -q --no-install-recommends "$package" ||
    say "$package could not be installed; going on without it"
done
say "done"
