#!/usr/bin/env bash
# Installs what building Ingot needs on Debian 12 or 13 or Ubuntu 24.04, except packages that are already
# installed. As root or with password-less sudo it installs them; otherwise it prints the command to
# run and exits with 1.
#   tools/setup.sh         installs what ./demo and ./check need
#   tools/setup.sh --ci    also installs what .ci/run needs: clang, clang-format, clang-tidy, Python, Doxygen, SimGrid and others
set -euo pipefail

packages=(g++ cmake ninja-build pkg-config libfmt-dev libcli11-dev libtomlplusplus-dev nlohmann-json3-dev
          libpcre2-dev libutf8proc-dev libxxhash-dev zlib1g-dev libzstd-dev libedit-dev libgtest-dev libgmock-dev libbenchmark-dev libdnnl-dev
          libopenmpi-dev openmpi-bin ccache xz-utils gzip)
# A text for ./demo and some tests. Without it ./demo trains on C++ headers, and those tests are skipped.
optional=(bible-kjv)
if [[ "${1:-}" == "--ci" ]]; then
  packages+=(clang clang-format clang-tidy libclang-rt-14-dev libomp-dev python3 python3-venv dpkg-dev groff-base doxygen curl)
  optional+=(libsimgrid-dev debootstrap)  # for docs/smpi.md and tools/bare_debian.sh; without them those are not checked
fi

say() { printf 'setup: %s\n' "$*"; }

if ! command -v dpkg >/dev/null || ! command -v apt-get >/dev/null; then
  say "this is no Debian or Ubuntu: please install the counterparts of: ${packages[*]}"
  # If the build tools are installed, continue: CMake names any missing library.
  command -v cmake >/dev/null && command -v ninja >/dev/null && command -v g++ >/dev/null && exit 0
  exit 1
fi

is_installed() { [[ "$(dpkg-query -W -f='${Status}' "$1" 2>/dev/null)" == "install ok installed" ]]; }
# Ubuntu 24.04 has another name for the package of the compiler's runtime library.
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
  # Only Debian 12 has the sanitizer runtime as a separate package.
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
