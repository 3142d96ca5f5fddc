#!/bin/sh
# Build QEMU from Debian 12's source package, with faults of its CPU mended, and faster for a hypervisor in
# it (the patches here say each): OUTDIR/qemu-system-x86_64, which dittovm prefers to the one in PATH where it
# lies beside the emulated host's files. It has what the emulated host needs and nothing else. Takes some ten
# minutes on two cores. Does nothing when it is newer than the sources in this directory.
#
# Needs: install-deps.sh qemu. The firmware is that of Debian's packages (install-deps.sh run).
set -eu
here=$(cd "$(dirname "$0")" && pwd)

if [ $# -ne 1 ] || [ "$1" = --help ]; then
    echo "usage: guest-tools/khost-qemu/build.sh OUTDIR" >&2
    exit 2
fi
mkdir -p "$1"
out=$(cd "$1" && pwd)
qemu=$out/qemu-system-x86_64 work=$out/qemu-work

fail() {
    echo "khost-qemu: $*" >&2
    exit 1
}

build() {
    cd "$work"
    dpkg-source --no-check -x qemu_*.dsc source >log 2>&1 || fail "cannot unpack it (see $work/log)"
    cd source
    for patch in "$here"/*.patch; do
        patch -s -p1 <"$patch" || fail "$patch is for another version than $(cat VERSION)"
    done
    ./configure --target-list=x86_64-softmmu --without-default-features --enable-system --enable-tcg \
        --enable-virtfs --enable-attr --enable-cap-ng --enable-slirp --enable-fdt=system --disable-werror \
        --disable-qom-cast-debug \
        --meson=/usr/bin/meson --firmwarepath=/usr/share/qemu:/usr/share/seabios >../log 2>&1 ||
        fail "cannot configure it; is everything there? (install-deps.sh qemu; see $work/log)"
    ninja -C build qemu-system-x86_64 >../log 2>&1 || fail "it does not compile (see $work/log)"
}

if [ -x "$qemu" ] && [ -z "$(find "$here" -type f -newer "$qemu")" ]; then
    exit 0
fi
echo "khost-qemu: building QEMU, which takes some minutes" >&2
"$here/../source-package.sh" bookworm qemu "$work" || fail "cannot download QEMU's source (see $work/log)"
(build)
install -m 755 "$work/source/build/qemu-system-x86_64" "$qemu"
rm -rf "$work"
