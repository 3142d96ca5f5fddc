#!/bin/sh
# The one place that names the Debian packages dittovm needs, and installs those that are missing.
# --help lists the groups.
set -eu

# Compile dittovm and its guest programs. The -dev packages pull in their libraries.
build='gcc libc6-dev make zlib1g-dev libxxhash-dev libzydis-dev libext2fs-dev libjansson-dev
    libzstd-dev liblzma-dev liblz4-dev libslirp-dev libnbd-dev libxml2-dev libvirt-dev libcmocka-dev'
# Run it: the emulated KVM host for machines without usable virtualization, and its kernel's
# decompressors; what --net user loads, what reads disk images that are not
# raw, and their file systems other than ext, what makes one for cloud-init, and what reads a domain's XML
# (libvirt0, with its own, is for those who have a libvirt).
run='qemu-system-x86 qemu-utils xz-utils zstd lz4 libslirp0 libnbd0 grub-common genisoimage libxml2'
# Make the small disk image and initial ram disks.
image='e2fsprogs busybox-static cpio zstd'
# Tests besides the unit tests, which need only "build". What is at the other end of a network, and reads what
# was on it; small disks with other file systems; a libvirtd; a repository to bisect.
test='bats git busybox-static gdb passt tshark python3 jq curl iproute2 fdisk dosfstools mtools xfsprogs btrfs-progs
    binutils libvirt-daemon libvirt-clients libxml2-utils'
# Full Debian guest images, which only the long tests use.
debian='debootstrap e2fsprogs fdisk dosfstools mtools xfsprogs btrfs-progs lvm2 binutils'
# Those who use a Debian with a network from outside (make check-world).
world='apache2-utils openssh-client postgresql-client curl apt-utils python3'
# Those who look at cores of a kernel (make check-core, which also wants a newer crash than Debian 12's).
core='crash gdb python3-drgn busybox-static debootstrap'
# Build a QEMU without a fault of Debian 12's ('make khost-qemu').
qemu='dpkg-dev patch pkg-config meson ninja-build libglib2.0-dev libpixman-1-dev libattr1-dev libcap-ng-dev
    libslirp-dev libfdt-dev zlib1g-dev'
# Build Bochs for the emulated Intel host ('make khost-vmx'), and start it.
vmx='g++ make patch xz-utils zstd busybox-static cpio bochsbios vgabios'
# Make the scripts for gdb of a Debian kernel's source (guest-tools/gdb/debian-kernel.sh).
symbols='dpkg make gcc libc6-dev flex bison bc libelf-dev libssl-dev python3 xz-utils'
# Tools for those who change dittovm: formatting and shell checks.
develop='clang-format shellcheck'

usage() {
    cat <<EOT
usage: install-deps.sh [--check | --list] [GROUP...]
  GROUP    build, run, image, test, debian, world, core, qemu, vmx, symbols, develop, or
           demo (build run image) or check (demo test debian develop); default: demo
  --check  print the missing packages, install nothing; exit 1 when one is missing
  --list   print every group's packages
EOT
}

# group_packages GROUP: its packages on one line; fails on an unknown name.
group_packages() {
    case $1 in
    build) echo $build ;;
    run) echo $run ;;
    image) echo $image ;;
    test) echo $test ;;
    debian) echo $debian ;;
    world) echo $world ;;
    core) echo $core ;;
    qemu) echo $qemu ;;
    vmx) echo $vmx ;;
    symbols) echo $symbols ;;
    develop) echo $develop ;;
    demo) echo $build $run $image ;;
    check) echo $build $run $image $test $debian $develop ;;
    *)
        echo "install-deps: no group '$1' (see --help)" >&2
        return 2
        ;;
    esac
}

# missing_packages PACKAGE...: those that dpkg does not hold as installed, each once.
missing_packages() {
    for package in $(printf '%s\n' "$@" | sort -u); do
        state=$(dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | head -n 1)
        [ "$state" = installed ] || printf '%s ' "$package"
    done
}

mode=install groups=
for arg; do
    case $arg in
    --check) mode=check ;;
    --list) mode=list ;;
    -h | --help) usage && exit 0 ;;
    -*)
        echo "install-deps: unknown option '$arg' (see --help)" >&2
        exit 2
        ;;
    *) groups="$groups $arg" ;;
    esac
done

if [ $mode = list ]; then
    for group in ${groups:-build run image test debian qemu vmx symbols develop}; do
        packages=$(group_packages "$group") || exit 2
        printf '%-8s %s\n' "$group:" "$packages"
    done
    exit 0
fi

if ! command -v dpkg-query >/dev/null; then
    echo "install-deps: this is not a Debian system; install the equivalents of 'install-deps.sh" \
        "--list' yourself" >&2
    exit 1
fi
wanted=
for group in ${groups:-demo}; do
    packages=$(group_packages "$group") || exit 2
    wanted="$wanted $packages"
done
missing=$(missing_packages $wanted)
missing=${missing% }
[ -n "$missing" ] || exit 0
if [ $mode = check ]; then
    echo "$missing"
    exit 1
fi
if [ "$(id -u)" != 0 ]; then
    echo "install-deps: not installed: $missing; run: sudo $0$groups" >&2
    exit 1
fi

export DEBIAN_FRONTEND=noninteractive
# Package lists are fetched only if there are none or they are too old to be served any more.
apt-get install -y -q --no-install-recommends $missing ||
    { apt-get update -q && apt-get install -y -q --no-install-recommends $missing; } || {
        echo "install-deps: apt-get could not install: $missing; its messages are above" >&2
        exit 1
    }
