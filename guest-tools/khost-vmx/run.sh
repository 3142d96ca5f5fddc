#!/bin/bash
# Runs a command in the emulated Intel host, with its output, errors and exit status; --help says how. build.sh puts it
# beside what it starts.
set -eu
cd -P .
vmx=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
kernel=$vmx/../khost-vmlinux
cpus=1 memory=1536
with=()

usage() {
    cat <<EOT
usage: run.sh [--cpus N] [--memory MIB] [--with PATH]... COMMAND [ARGUMENT...]
  --cpus N      CPUs of the host (default 1)
  --memory MIB  its memory (default 1536), in which all its files are, too
  --with PATH   a file or directory that is there as well, or the name of a program; more than once

COMMAND, programs and their libraries are copied into the host. The current directory is there, and of its files
those that --with names. What is new or changed in it at the end comes back. COMMAND has no input.
EOT
}

fail() {
    echo "khost-vmx: $*" >&2
    exit 1
}

# put PATH: copies it to the same place in the host. Its directories are the real ones, not links (as /bin).
put() {
    local to
    to=$tree$(realpath "$(dirname "$1")")
    mkdir -p "$to"
    cp -RLu "$1" "$to/"
}

# bring PATH: with the libraries that it is linked with.
bring() {
    local library
    put "$1"
    [ -x "$1" ] && [ ! -d "$1" ] || return 0
    for library in $(ldd "$1" 2>/dev/null | grep -o '/[^ ]*'); do
        put "$library"
    done
}

# found NAME: the path of a program or file.
found() {
    [ -e "$1" ] && echo "$1" || command -v "$1" || fail "there is no $1"
}

while [ $# -gt 0 ]; do
    case $1 in
    --cpus) cpus=$2 ;;
    --memory) memory=$2 ;;
    --with) with+=("$(found "$2")") ;;
    --help) usage && exit ;;
    *) break ;;
    esac
    shift 2
done
[ $# -gt 0 ] || { usage >&2 && exit 2; }
[ -x "$vmx/bochs" ] || fail "there is no $vmx/bochs; run 'make khost-vmx'"

work=$(mktemp -d)
bochs=
trap '[ -z "$bochs" ] || kill "$bochs" 2>/dev/null || true; rm -rf "$work"' EXIT
tree=$work/tree
mkdir -p "$tree/request" "$tree$PWD"
with+=("$(found "$1")")
for path in "${with[@]}"; do
    bring "$path"
done
echo "$PWD" >"$tree/request/directory"
printf '%q ' exec "$(realpath -s "$(found "$1")")" "${@:2}" >"$tree/request/command"
cp "$vmx/ramdisk.cpio" "$work/ramdisk"
truncate -s %4 "$work/ramdisk"
(cd "$tree" && find . | cpio -o -H newc -R 0:0 --quiet) >>"$work/ramdisk"
rm -rf "$tree"
# For start.c.
printf '%s console=ttyS0 loglevel=1 panic=-1 mitigations=off\0' "$(stat -c %s "$work/ramdisk")" >"$work/request"
mkfifo "$work/serial" "$work/errors" "$work/out"
# Bochs itself takes 2 GiB at most; it swaps the rest of its guest's.
host_memory=$((memory < 2048 ? memory : 2048))
cat >"$work/bochsrc" <<EOT
display_library: nogui
memory: guest=$memory, host=$host_memory
romimage: file=/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=/usr/share/vgabios/vgabios.bin
cpu: model=broadwell_ult, count=$cpus, ips=50000000, reset_on_triple_fault=0, ignore_bad_msrs=1
clock: sync=none, time0=utc
optramimage1: file=$vmx/start.bin, address=0x10000000
optramimage2: file=$kernel, address=0x11000000
optramimage3: file=$work/ramdisk, address=0x18000000
optramimage4: file=$work/request, address=0x0ff00000
floppya: 1_44=$vmx/boot.img, status=inserted, write_protected=1
ata0: enabled=0
boot: floppy
com1: enabled=1, mode=file, dev=$work/serial
com2: enabled=1, mode=file, dev=$work/errors
port_e9_hack: enabled=1, all_rings=1
log: $work/bochs.log
panic: action=fatal
error: action=ignore
info: action=ignore
debug: action=ignore
EOT
# Bochs opens a port at the first byte that is written to it, and there may be none.
cat "$work/serial" &
readers=$!
exec 5>"$work/serial"
cat "$work/errors" >&2 5>&- &
readers+=" $!"
exec 6>"$work/errors"
"$vmx/bochs" -q -f "$work/bochsrc" >"$work/out" 2>"$work/err" 5>&- 6>&- &
bochs=$!
exec 4<"$work/out"
status=
while [ -z "$status" ] && IFS= read -r line <&4; do
    [[ $line != 'khost-vmx: exit status '* ]] || status=${line##* }
done
[ -z "$status" ] || cpio -idu --quiet <&4
wait "$bochs" || true
exec 5>&- 6>&-
# shellcheck disable=SC2086 # numbers
wait $readers || true
[ -n "$status" ] || fail "the host ended by itself: $(grep -h PANIC "$work/bochs.log" "$work/err" | tail -n 1)"
exit "$status"
