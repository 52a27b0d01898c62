#!/usr/bin/env bash
# Checks a folder of bench/gpu/pack.sh without running it:
#   bench/gpu/check_pack.sh FOLDER
# Every library that a program or a library of it needs is in FOLDER/lib or a part of glibc, and no symbol is newer
# than the glibc of Ubuntu 24.04. The libraries that are loaded at run time (CUDA's) are the other machine's.
set -euo pipefail
folder=$1
newest=GLIBC_2.39
of_glibc='^(lib(c|m|dl|rt|pthread)\.so\.[0-9]+|ld-linux-x86-64\.so\.2)$'
failed=0
complain() {
  echo "check_pack: $1" >&2
  failed=1
}
for file in "$folder"/* "$folder"/lib/*; do
  [[ -f $file && $(head -c 4 "$file") == $'\x7fELF' ]] || continue
  name=$(basename "$file")
  while read -r library; do
    [[ -e $folder/lib/$library || $library =~ $of_glibc ]] ||
      complain "$name needs $library, which is neither in $folder/lib nor a part of glibc"
  done < <(readelf -dW "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
  version=$(readelf -VW "$file" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
  [[ $(printf '%s\n' "$newest" "$version" | sort -V | tail -n 1) == "$newest" ]] || complain "$name needs $version, newer than $newest"
done
exit $failed
