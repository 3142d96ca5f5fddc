#!/bin/sh
# Builds the small guest disk image of the demo, the tests and the benchmarks: a partitioned disk
# with one ext4 root that looks like an installed Debian to a boot loader (/boot/grub/grub.cfg, the
# stock kernel package's vmlinuz, an initrd), a busybox user land and the ditto-* programs.
# Needs no root, mounts nothing, installs nothing. --help lists the options.
set -eu
umask 022

here=$(cd "$(dirname "$0")" && pwd)
tree=$(dirname "$(dirname "$here")")
programs=$(dirname "$here")/programs
. "$here/mbr.sh"
cache=$tree/build/cache
package='' out=''
# Fixed, so that the same inputs give the same image.
uuid=d1770f11-0c0d-4e0f-9a1b-5e7ec0de0001
hash_seed=d1770f11-0c0d-4e0f-9a1b-5e7ec0de0002
image_mib=256 partition_start_sectors=2048
date_of_files='2024-01-01 00:00:00 UTC'
# In the order in which they must be loaded.
boot_modules='virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_blk
    crc16 mbcache crc32c_generic jbd2 ext4'
other_modules='virtio_mmio virtio-rng virtio_console failover net_failover virtio_net'

usage() {
    cat <<EOT
usage: build-image.sh [--cache DIR] [--kernel-package FILE.deb] OUT.img
  OUT.img                    the image to write, $image_mib MiB, sparse; left alone if up to date
  --cache DIR                where downloaded packages are kept (default: build/cache)
  --kernel-package FILE.deb  a linux-image-*-amd64 package to use instead of downloading the one that
                             linux-image-cloud-amd64 depends on
EOT
}

fail() {
    echo "build-image: $*" >&2
    exit 1
}

# cached_kernel_package: the newest stock kernel package in the cache, or nothing.
cached_kernel_package() {
    ls "$cache"/linux-image-[0-9]*-cloud-amd64_*.deb 2>/dev/null | sort -V | tail -n 1
}

# download_kernel_package: fetches what linux-image-cloud-amd64 depends on, by apt's present lists.
download_kernel_package() {
    name=$(apt-cache depends linux-image-cloud-amd64 2>/dev/null |
        sed -n 's/^ *Depends: \(linux-image-[0-9]\)/\1/p' | head -n 1)
    if [ -z "$name" ]; then
        echo "apt knows no package linux-image-cloud-amd64" >"$cache/apt.log"
        return 1
    fi
    echo "build-image: downloading $name" >&2
    (cd "$cache" && apt-get download -q "$name" >apt.log 2>&1)
}

# kernel_package: prints the path of the stock kernel package, downloading it if the cache has none.
kernel_package() {
    if [ -z "$(cached_kernel_package)" ]; then
        mkdir -p "$cache"
        # apt's lists may be missing, or name a version that is no longer served.
        download_kernel_package || {
            [ "$(id -u)" = 0 ] && apt-get update -q >/dev/null 2>&1 && download_kernel_package
        } || fail "no kernel package: $(tail -n 1 "$cache/apt.log");" \
            "run 'apt-get update' as root, or give --kernel-package"
    fi
    cached_kernel_package
}

# up_to_date: whether the image is newer than everything it is made from.
up_to_date() {
    [ -f "$out" ] &&
        [ -z "$(find "$here" "$programs" "$package" -type f -newer "$out" | head -n 1)" ]
}

# copy_modules TARGET MODULE...: copies modules of the kernel package into the directory, and prints the
# names of those that are not built into the kernel.
copy_modules() {
    target=$1
    shift
    mkdir -p "$target"
    for module; do
        file=$(find "$work/package/lib/modules" -name "$module.ko" | head -n 1)
        if [ -n "$file" ]; then
            cp "$file" "$target/"
            echo "$module"
        else
            grep -q "/$module\.ko\$" "$work"/package/lib/modules/*/modules.builtin ||
                fail "the kernel package has no module $module"
        fi
    done
}

# add_busybox BIN SBIN: busybox and a link for each of its applets.
add_busybox() {
    cp "$busybox" "$1/busybox"
    "$busybox" --list | while read -r applet; do
        [ "$applet" = busybox ] || ln -sf busybox "$1/$applet"
    done
}

set_dates() {
    find "$1" -exec touch -h -d "$date_of_files" {} +
}

build_programs() {
    for source in "$programs"/*.c; do
        name=$(basename "$source" .c)
        flags=-D_GNU_SOURCE
        # Without a C library: 32-bit ones are not installed everywhere.
        [ "$name" != ditto-i386 ] || flags='-m32 -ffreestanding -nostdlib -fno-pic -no-pie -fno-stack-protector'
        # shellcheck disable=SC2086 # words
        "${CC:-cc}" -std=c11 $flags -O2 -Wall -Wextra -Werror -static -s \
            -o "$1/$name" "$source" || fail "cannot compile $source"
    done
    # busybox's date has no %N, and its shell prefers its own date to one in PATH.
    mv "$1/ditto-date" "$1/date"
}

build_initramfs() {
    ram=$work/initramfs
    mkdir -p "$ram/bin" "$ram/dev" "$ram/proc" "$ram/sys" "$ram/root"
    cp "$busybox" "$ram/bin/busybox"
    for applet in sh mount insmod findfs usleep ls switch_root poweroff; do
        ln -s busybox "$ram/bin/$applet"
    done
    cp "$here/initramfs-init" "$ram/init"
    copy_modules "$ram/modules" $boot_modules >"$work/order"
    mv "$work/order" "$ram/modules/order"
    set_dates "$ram"
    # No /dev/console is packed, since that needs root: the kernel's built-in initramfs has one.
    (cd "$ram" && find . | LC_ALL=C sort | cpio --quiet --reproducible -R 0:0 -o -H newc) |
        zstd -q -10 >"$1"
}

build_root() {
    root=$work/root
    mkdir -p "$root/usr/bin" "$root/usr/sbin" "$root/usr/lib/ditto" "$root/etc/udhcpc" \
        "$root/boot/grub" "$root/dev" "$root/proc" "$root/sys" "$root/run" "$root/tmp" \
        "$root/root" "$root/mnt" "$root/etc" "$root/var/tmp" "$root/usr/lib/modules"
    for directory in bin sbin lib; do
        ln -s "usr/$directory" "$root/$directory"
    done
    add_busybox "$root/usr/bin"
    build_programs "$root/usr/bin"
    cp "$here"/scripts/* "$root/usr/lib/ditto/"
    cp "$here/rootfs-init" "$root/usr/sbin/init"
    cp "$here/udhcpc-script" "$root/etc/udhcpc/default.script"
    chmod 755 "$root"/usr/lib/ditto/* "$root/usr/sbin/init" "$root/etc/udhcpc/default.script"
    echo 'alias date=/bin/date' >"$root/etc/profile"
    echo ditto >"$root/etc/hostname"
    echo 'root::0:0:root:/root:/bin/sh' >"$root/etc/passwd"
    echo 'root:x:0:' >"$root/etc/group"
    echo '127.0.0.1 localhost ditto' >"$root/etc/hosts"
    echo "UUID=$uuid / ext4 errors=remount-ro 0 1" >"$root/etc/fstab"
    printf 'NAME="dittovm guest"\nID=dittovm-guest\n' >"$root/etc/os-release"

    modules=$root/usr/lib/modules/$version
    copy_modules "$modules/kernel" $boot_modules $other_modules >/dev/null
    cp "$work/package/lib/modules/$version"/modules.builtin* "$modules/"
    (cd "$work" && "$busybox" depmod -b "$root" "$version") || fail "busybox depmod failed"

    cp "$work/package/boot/vmlinuz-$version" "$root/boot/"
    build_initramfs "$root/boot/initrd.img-$version"
    cat >"$root/boot/grub/grub.cfg" <<EOT
set default="0"
set timeout=0
menuentry 'dittovm guest' --class gnu-linux {
	insmod part_msdos
	insmod ext2
	search --no-floppy --fs-uuid --set=root $uuid
	linux	/boot/vmlinuz-$version root=UUID=$uuid ro console=ttyS0 quiet
	initrd	/boot/initrd.img-$version
}
EOT
    set_dates "$root"
}

build_image() {
    image=$work/image
    offset=$((partition_start_sectors * 512))
    truncate -s ${image_mib}M "$image"
    seconds=$(date -d "$date_of_files" +%s)
    E2FSPROGS_FAKE_TIME=$seconds mke2fs -q -F -t ext4 -b 4096 -J size=4 \
        -U $uuid -L ditto-root -E "offset=$offset,root_owner=0:0,hash_seed=$hash_seed" \
        -d "$work/root" "$image" $((image_mib * 1024 - offset / 1024))k ||
        fail "mke2fs could not make the file system"
    # mke2fs takes owners and change times from the tree, which differ from one build to the next.
    (cd "$work/root" && find . -mindepth 1 | LC_ALL=C sort) | while read -r file; do
        for field in 'uid 0' 'gid 0' "ctime @$seconds" "atime @$seconds"; do
            echo "sif \"${file#.}\" $field"
        done
    done >"$work/fields"
    E2FSPROGS_FAKE_TIME=$seconds debugfs -w -f "$work/fields" "$image?offset=$offset" \
        >"$work/debugfs.log" 2>&1 || fail "debugfs failed: $(tail -n 1 "$work/debugfs.log")"
    write_partition_table "$image" $image_mib $partition_start_sectors
}

while [ $# -gt 0 ]; do
    case $1 in
    --cache | --kernel-package)
        [ $# -ge 2 ] || fail "$1 needs a value (see --help)"
        if [ "$1" = --cache ]; then cache=$2; else package=$2; fi
        shift
        ;;
    -h | --help) usage && exit 0 ;;
    -*) fail "unknown option '$1' (see --help)" ;;
    *)
        [ -z "$out" ] || fail "one OUT.img, not '$out' and '$1'"
        out=$1
        ;;
    esac
    shift
done
[ -n "$out" ] || { usage >&2 && exit 2; }
PATH=$PATH:/usr/sbin:/sbin
for tool in busybox cpio debugfs dpkg-deb mke2fs zstd "${CC:-cc}"; do
    command -v "$tool" >/dev/null ||
        fail "$tool is not installed; run guest-tools/install-deps.sh build image"
done
busybox=$(command -v busybox)

[ -n "$package" ] || package=$(kernel_package)
[ -f "$package" ] || fail "no kernel package $package"
! up_to_date || exit 0

mkdir -p "$(dirname "$out")"
out=$(cd "$(dirname "$out")" && pwd)/$(basename "$out")
work=$(mktemp -d "$out.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
mkdir "$work/package"
dpkg-deb -x "$package" "$work/package" || fail "$package is not a Debian package"
vmlinuz=$(ls "$work"/package/boot/vmlinuz-* 2>/dev/null) || fail "$package has no /boot/vmlinuz-*"
version=${vmlinuz##*/vmlinuz-}
build_root
build_image
mv "$work/image" "$out"
