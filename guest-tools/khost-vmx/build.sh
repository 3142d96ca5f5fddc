#!/bin/sh
# Build the emulated Intel host in OUTDIR/vmx: Bochs, from Debian's source package with the patches here, and what it
# starts (boot.S, start.c; a ram disk with init and the kernel's modules). The kernel is that of the emulated AMD host,
# which must be in OUTDIR already ('make khost'). Takes some ten minutes on two cores. Does nothing when it is newer
# than the sources in this directory; Bochs is built again for another patch only.
#
# Needs: install-deps.sh vmx. 2.7, which is Debian 12's, has another fault there: hence the source of trixie's.
set -eu
here=$(cd "$(dirname "$0")" && pwd)

if [ $# -ne 1 ] || [ "$1" = --help ]; then
    echo "usage: guest-tools/khost-vmx/build.sh OUTDIR" >&2
    exit 2
fi
mkdir -p "$1/vmx"
khost=$(cd "$1" && pwd)
out=$khost/vmx
work=$out/work

fail() {
    echo "khost-vmx: $*" >&2
    exit 1
}

build_bochs() {
    "$here/../source-package.sh" trixie bochs "$work" --tar-only ||
        fail "cannot download Bochs's source (see $work/log)"
    mkdir "$work/source"
    tar -x -f "$work"/bochs_*.orig.tar.* -C "$work/source" --strip-components=1
    cd "$work/source"
    for patch in "$here"/*.patch; do
        patch -s -p1 <"$patch" || fail "$patch is for another version"
    done
    ./configure --with-nogui --enable-x86-64 --enable-cpu-level=6 --enable-smp --enable-vmx=2 --enable-svm \
        --enable-avx --enable-evex --enable-all-optimizations --enable-pci --enable-memtype --disable-plugins \
        --disable-docbook >../log 2>&1 || fail "cannot configure it; is everything there? (install-deps.sh vmx)"
    make -j"$(nproc)" bochs >../log 2>&1 || fail "it does not compile (see $work/log)"
    strip -o "$out/bochs" bochs
}

# The boot sector on a floppy disk, and the flat binary that enters the kernel.
build_start() {
    flags='-m32 -std=gnu11 -O2 -Wall -Wextra -Werror -ffreestanding -fno-pic -fno-stack-protector
        -fcf-protection=none -fno-asynchronous-unwind-tables -mgeneral-regs-only'
    # shellcheck disable=SC2086 # words
    ${CC:-cc} $flags -c "$here/boot.S" -o "$work/boot.o" && ${CC:-cc} $flags -c "$here/start.c" -o "$work/start.o"
    ld -m elf_i386 -Ttext 0x7c00 -e boot --oformat binary -o "$out/boot.img" "$work/boot.o"
    truncate -s 1440K "$out/boot.img"
    ld -m elf_i386 -T "$here/start.ld" -e start --oformat binary -o "$out/start.bin" "$work/start.o"
}

# In the order in which they have to be loaded, which is that of their names.
build_ram_disk() {
    disk=$work/disk
    mkdir -p "$disk/dev"
    for directory in bin lib lib64 sbin; do
        mkdir -p "$disk/usr/$directory"
        ln -s "usr/$directory" "$disk/$directory"
    done
    mkdir "$disk/lib/khost"
    cp "$here/init" "$disk/init"
    cp "$(command -v busybox)" "$disk/bin/busybox"
    ${CC:-cc} -O2 -static -s -Wall -Wextra -Werror -o "$disk/lib/khost/out" "$here/out.c"
    dpkg-deb --fsys-tarfile "$khost"/khost-cache/linux-image-*.deb | tar -x -C "$work" --wildcards \
        '*/irqbypass.ko*' '*/kvm.ko*' '*/kvm-intel.ko*'
    number=0
    for module in irqbypass kvm kvm-intel; do
        number=$((number + 1))
        file=$(find "$work" -name "$module.ko*")
        case $file in
        *.xz) xz -dc "$file" ;;
        *.zst) zstd -qdc "$file" ;;
        *) cat "$file" ;;
        esac >"$disk/lib/khost/$number-$module.ko"
    done
    (cd "$disk" && find . | LC_ALL=C sort | cpio -o -H newc -R 0:0 --quiet) >"$out/ramdisk.cpio"
}

if [ -s "$out/ramdisk.cpio" ] &&
    [ -z "$(find "$here" "$khost/khost-vmlinux" -type f -newer "$out/ramdisk.cpio")" ]; then
    exit 0
fi
[ -e "$khost/khost-vmlinux" ] || fail "there is no kernel in $khost; run 'make khost' first"
rm -rf "$work"
mkdir "$work"
if [ ! -x "$out/bochs" ] || [ -n "$(find "$here"/*.patch -newer "$out/bochs")" ]; then
    echo "khost-vmx: building Bochs, which takes some minutes" >&2
    (build_bochs)
fi
build_start
cp "$here/run.sh" "$out/"
build_ram_disk
rm -rf "$work"
