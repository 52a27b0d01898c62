#!/usr/bin/env bash
# Runs a command in a checkout inside a bare Debian, as a newcomer's machine would: tools/bare_debian.sh SUITE [COMMAND...]
#   tools/bare_debian.sh trixie             # Debian 13: ./demo and then ./check
#   tools/bare_debian.sh bookworm ./demo    # Debian 12
# The root folder is made by debootstrap in BARE_DEBIAN (by default build/debian/SUITE) and has nothing but the base
# system, so the project's scripts install what they need. Delete it to start from nothing; its ccache makes a second run
# faster. The checkout is the tracked files as they are in the working tree. Needs root and debootstrap.
set -euo pipefail
cd "$(dirname "$0")/.."
suite=$1
shift
command=("$@")
[[ $# -gt 0 ]] || command=(bash -c './demo --quiet && ./check')
folder=${BARE_DEBIAN:-$PWD/build/debian/$suite}

if [[ $EUID -ne 0 ]] || ! command -v debootstrap >/dev/null; then
  echo "bare_debian: this needs root and the package debootstrap"
  exit 1
fi
if [[ ! -e "$folder/made" ]]; then
  rm -rf "$folder"
  mkdir -p "$folder"
  echo "bare_debian: debootstrap of $suite into $folder"
  if ! debootstrap --variant=minbase "$suite" "$folder/root" >"$folder/debootstrap.log" 2>&1; then
    tail -20 "$folder/debootstrap.log"
    exit 1
  fi
  touch "$folder/made"
fi
rm -rf "$folder/root/root/ingot"
mkdir "$folder/root/root/ingot"
git ls-files -z | tar --null --create --files-from=- | tar --extract --directory="$folder/root/root/ingot"
# The mounts and the processes of the namespace end with the command. Its first process is a shell that waits, because the
# first process takes over the ones that lose their parent.
unshare --mount --pid --fork bash -c '
  root=$1
  shift
  mount -t proc proc "$root/proc"
  mount --rbind /dev "$root/dev"
  mount --rbind /sys "$root/sys"
  exec chroot "$root" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 ${CI:+CI=$CI} ${JOBS:+JOBS=$JOBS} \
    bash -c "cd /root/ingot; \"\$@\"; exit \$?" _ "$@"' _ "$folder/root" "${command[@]}"
