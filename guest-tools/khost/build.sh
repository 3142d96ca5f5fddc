#!/bin/sh
# Build the emulated KVM host: OUTDIR/khost-vmlinux (Debian's stock kernel, uncompressed, because QEMU
# starts that form by PVH in half the time) and OUTDIR/khost-initrd.cpio (the agent and the kernel
# modules). The kernel package is fetched with 'apt-get download' and unpacked, never installed.
# Does nothing when both files are newer than the sources in this directory.
# SUITE: the kernel of this release of Debian (bullseye, sid), not of the one that is installed here.
#
# Needs: apt-get, apt-cache, dpkg-deb, xz (xz-utils), zstd, cpio, cc with a static libc (libc6-dev).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)

if [ $# -lt 1 ] || [ $# -gt 2 ] || [ "$1" = --help ]; then
    echo "usage: guest-tools/khost/build.sh OUTDIR [SUITE]" >&2
    exit 2
fi
mkdir -p "$1"
out=$(cd "$1" && pwd) suite=${2:-}
vmlinux=$out/khost-vmlinux initrd=$out/khost-initrd.cpio cache=$out/khost-cache

# In the order in which they have to be loaded; a module that is not in the package is built in, or
# not there in this version: the agent reports what is missing when it is needed.
modules="drivers/virtio/virtio_ring drivers/virtio/virtio drivers/virtio/virtio_pci_legacy_dev
drivers/virtio/virtio_pci_modern_dev drivers/virtio/virtio_pci drivers/char/virtio_console
net/core/failover drivers/net/net_failover drivers/net/virtio_net fs/netfs/netfs
fs/fscache/fscache net/9p/9pnet net/9p/9pnet_virtio fs/9p/9p fs/overlayfs/overlay
virt/lib/irqbypass drivers/char/hw_random/rng-core drivers/crypto/ccp/ccp arch/x86/kvm/kvm arch/x86/kvm/kvm-amd"

up_to_date() {
    [ -s "$vmlinux" ] && [ -s "$initrd" ] &&
        [ -z "$(find "$here" "$root/base/bytes.c" "$root/base/bytes.h" -type f -newer "$initrd")" ]
}

fail() {
    echo "khost: $*" >&2
    exit 1
}

# of_suite COMMAND...: of apt, which has lists of its own for a release that is not the installed one.
of_suite() {
    command=$1
    shift
    if [ -n "$suite" ]; then
        set -- -o Dir::Etc::SourceList="$cache/sources.list" -o Dir::Etc::SourceParts=/dev/null \
            -o Dir::State::Lists="$cache/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= "$@"
    fi
    "$command" "$@"
}

update() {
    if [ -n "$suite" ]; then
        mkdir -p "$cache/lists/partial"
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]" \
            "http://deb.debian.org/debian $suite main" >"$cache/sources.list"
    fi
    of_suite apt-get -qq update >&2
}

# depends PACKAGE PATTERN: those that it depends on.
depends() {
    of_suite apt-cache depends "$1" 2>/dev/null | sed -n "s/^ *Depends: \($2-[0-9][^ ]*\)\$/\1/p"
}

# The package that linux-image-amd64 stands for at the moment, e.g. linux-image-6.1.0-40-amd64, and since Linux 7
# those of which that consists.
download() {
    package=$(depends linux-image-amd64 linux-image | head -n 1)
    [ -n "$package" ] || return 1
    parts=$(depends "$package" 'linux-\(binary\|modules\)')
    # shellcheck disable=SC2086 # names of packages
    (cd "$cache" && of_suite apt-get -qq download "$package" $parts 2>download.log)
}

fetch_kernel() {
    mkdir -p "$cache"
    if [ -z "$(find "$cache" -name 'linux-image-*.deb')" ]; then
        echo "khost: fetching Debian's kernel package${suite:+ of $suite}" >&2
        if [ -n "$suite" ] || ! download; then
            update || true
            download || fail "cannot download linux-image-amd64's kernel package (see" \
                "$cache/download.log); try 'apt-get update' as root"
        fi
    fi
    rm -rf "$cache/tree"
    mkdir "$cache/tree"
    for deb in "$cache"/linux-*.deb; do
        dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$cache/tree" --no-same-owner
    done
}

# u32 FILE OFFSET: the little-endian 32-bit number at that offset.
u32() {
    od -An -tu4 -j "$2" -N 4 "$1" | tr -d ' '
}

# bzImage (Documentation/x86/boot.rst): the protected-mode part starts after setup_sects (at 0x1f1)
# sectors and the boot sector; payload_offset (0x248) counts from there, payload_length is at 0x24c.
extract_vmlinux() {
    bzimage=$(find "$cache/tree" \( -path '*/boot/vmlinuz-*' -o -path '*/modules/*/vmlinuz' \) -type f | head -n 1)
    [ -n "$bzimage" ] || fail "no kernel in the packages; remove $cache and try again"
    sectors=$(od -An -tu1 -j 497 -N 1 "$bzimage" | tr -d ' ')
    start=$(((sectors + 1) * 512 + $(u32 "$bzimage" 584)))
    length=$(u32 "$bzimage" 588)
    payload() {
        tail -c "+$((start + 1))" "$bzimage" | head -c "$length"
    }
    case $(payload | head -c 4 | od -An -tx1 | tr -d ' ') in
    fd377a58) payload | xz -dc --single-stream >"$vmlinux.new" ;;
    28b52ffd) payload | head -c "$((length - 4))" | zstd -qdc >"$vmlinux.new" ;;
    1f8b*) payload | head -c "$((length - 4))" | gzip -dc >"$vmlinux.new" ;;
    *) fail "$bzimage: compressed in a way that this script does not know" ;;
    esac
    case $(head -c 4 "$vmlinux.new" | od -An -tx1 | tr -d ' ') in
    7f454c46) ;;
    *) fail "$bzimage: its payload is not an ELF file" ;;
    esac
}

build_initrd() {
    stage=$cache/initrd
    rm -rf "$stage"
    mkdir -p "$stage/lib" "$stage/dev" "$stage/proc" "$stage/sys" "$stage/new"
    ${CC:-cc} -std=c11 -D_GNU_SOURCE -O2 -s -static -Wall -Wextra -Werror -Wshadow -I "$root" \
        -o "$stage/init" "$here/agent.c" "$here/agent_setup.c" "$here/agent_relay.c" \
        "$root/base/bytes.c"
    for module in $modules; do
        name=${module##*/}
        file=$(find "$cache/tree" -path "*/kernel/$module.ko*" | head -n 1)
        case $file in
        '') continue ;;
        *.xz) xz -dc "$file" >"$stage/lib/$name.ko" ;;
        *.zst) zstd -qdc "$file" >"$stage/lib/$name.ko" ;;
        *) cp "$file" "$stage/lib/$name.ko" ;;
        esac
        echo "$name" >>"$stage/lib/order"
    done
    (cd "$stage" && find . | LC_ALL=C sort | cpio -o -H newc -R 0:0 --quiet) >"$initrd.new"
}

if up_to_date; then
    exit 0
fi
trap 'rm -rf "$cache/tree" "$cache/initrd" "$vmlinux.new" "$initrd.new"' EXIT
fetch_kernel
extract_vmlinux
build_initrd
mv "$vmlinux.new" "$vmlinux"
mv "$initrd.new" "$initrd"
