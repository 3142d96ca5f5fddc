#!/bin/bash
# debian-kernel.sh VERSION DIRECTORY: for gdb, a Debian kernel's debug information and the scripts that its
# source brings (lx-ps, lx-dmesg, lx-symbols, $lx_current(), $lx_per_cpu()). VERSION is what `uname -r` says in
# the guest and `dittovm info` as "kernel". The packages are fetched by apt-get, which must know them: up to
# 1 GB, and up to 6 GB in DIRECTORY, which is made. Nothing is installed, and root is not needed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

fail() {
    echo "debian-kernel: $*" >&2
    exit 1
}

usage() {
    sed -n '2,5s/^# //p' "$0"
}

case ${1:-} in
-h | --help) usage && exit 0 ;;
-*) usage >&2 && exit 2 ;;
esac
[ $# = 2 ] || { usage >&2 && exit 2; }
version=$1 to=$2
[[ $version =~ ^([0-9]+\.[0-9]+)[a-z0-9.+~-]*$ ]] || fail "'$version' is no version of a kernel, as 6.1.0-50-amd64"
source_package=linux-source-${BASH_REMATCH[1]}
[ ! -e "$to" ] || fail "$to is there already"
missing=$("$here/../install-deps.sh" --check symbols) ||
    fail "not installed: $missing; run: sudo $(realpath "$here/../install-deps.sh") symbols"
parent=$(dirname "$to")
mkdir -p "$parent"
work=$(mktemp -d "$parent/debian-kernel-XXXXXX")
trap 'rm -rf "$work"' EXIT

# unpack PACKAGE PATTERN: those files of it, in $work/root.
unpack() {
    echo "debian-kernel: fetching $1" >&2
    (cd "$work" && apt-get download -q "$1") >"$work/log" 2>&1 ||
        fail "apt-get does not have $1 ($(grep -m 1 '^E:' "$work/log")); try 'apt-get update'; older ones are on snapshot.debian.org"
    mkdir -p "$work/root"
    dpkg-deb --fsys-tarfile "$work/$1"_*.deb | tar -x -C "$work/root" --wildcards "$2" || fail "$1 cannot be unpacked"
    rm "$work/$1"_*.deb
}

unpack "linux-headers-$version" './usr/src/*/.config'
unpack "$source_package" './usr/src/*.tar.xz'
unpack "linux-image-$version-dbg" './usr/lib/debug/*'
echo 'debian-kernel: making the scripts' >&2
tar -x -C "$work" -f "$work/root/usr/src/$source_package.tar.xz"
tree=$work/$source_package
cp "$work/root/usr/src/linux-headers-$version/.config" "$tree/"
make -C "$tree" olddefconfig scripts_gdb >"$work/log" 2>&1 ||
    fail "the scripts cannot be made: $(tail -n 1 "$work/log")"

mkdir -p "$work/done/scripts"
cp -r "$tree/scripts/gdb" "$work/done/scripts/"
cp "$tree/scripts/gdb/vmlinux-gdb.py" "$work/done/"
mv "$work/root/usr/lib/debug/boot/vmlinux-$version" "$work/done/vmlinux"
mv "$work/root/usr/lib/debug/lib/modules/$version" "$work/done/modules"
rm -f "$work/done/modules/vmlinux"
mv "$work/done" "$to"
echo "debian-kernel: in $to; in it: gdb -iex 'add-auto-load-safe-path .' vmlinux; 'lx-symbols modules' behind 'target remote'" >&2
