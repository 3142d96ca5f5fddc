#!/bin/bash
# image.sh RELEASE: makes the disk of a Debian release for the matrix of guests, build/matrix/RELEASE.img: one
# ext4 file system with what the workloads need, this directory's guest/ as /matrix, and a GRUB menu. Beside
# it, in build/matrix/RELEASE.boot, are its kernels and for each an initial ram disk made by Debian's own tools
# with the modules of this disk only, which boots quicker than the one in the image. Needs root, as
# debootstrap does; done again when the packages below change. MIRROR is where from.
set -euo pipefail
umask 022
here=$(cd "$(dirname "$0")" && pwd)
out=${MATRIX:-$here/../../build/matrix}
mirror=${MIRROR:-http://deb.debian.org/debian}
export PATH=$PATH:/usr/sbin:/sbin DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8

common='systemd-sysv udev dbus libpam-systemd kmod procps iproute2 e2fsprogs initramfs-tools zstd
    python3 sqlite3 perl linux-image-amd64'
declare -A more=(
    [bullseye]=''
    [bookworm]='linux-image-cloud-amd64 linux-image-rt-amd64 gcc libc6-dev nodejs openjdk-17-jre-headless
        luajit golang-go postgresql redis-server stress-ng fio cryptsetup-bin kexec-tools linux-perf bpftrace
        gdb binutils xz-utils'
    [trixie]=''
    [sid]=''
)
declare -A mib=([bullseye]=2048 [bookworm]=5120 [trixie]=2048 [sid]=2048)

fail() {
    echo "image: $*" >&2
    exit 1
}

# in_root COMMAND...: in the tree, with its output in the log.
in_root() {
    chroot "$root" "$@" >>"$log" 2>&1 || fail "'$*' failed in the tree: $(tail -n 1 "$log") (all of it in $log)"
}

make_tree() {
    debootstrap --variant=minbase --cache-dir="$out/cache" "$release" "$root" "$mirror" >"$log" 2>&1 ||
        fail "debootstrap failed: $(tail -n 1 "$log") (all of it in $log)"
    mount -t proc proc "$root/proc" # Java's packages want it
    # Nothing is started while packages are installed.
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
    chmod 755 "$root/usr/sbin/policy-rc.d"
    in_root apt-get -o Acquire::Check-Valid-Until=false update -q # a mirror that stands still is fine
    in_root apt-get install -y -q --no-install-recommends "${packages[@]}"
    in_root apt-get clean
    rm "$root/usr/sbin/policy-rc.d"
    rm -rf "$root"/var/lib/apt/lists/* "$root"/usr/share/{doc,man,locale}
    echo ditto >"$root/etc/hostname"
    echo '127.0.0.1 localhost ditto' >"$root/etc/hosts"
    echo '/dev/vda / ext4 errors=remount-ro 0 1' >"$root/etc/fstab"
    echo root:ditto | chroot "$root" chpasswd
    # Units that start on their own at some hour, and servers that the workloads start.
    local unit
    for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer fstrim.timer \
        e2scrub_all.timer postgresql.service redis-server.service; do
        ln -sf /dev/null "$root/etc/systemd/system/$unit"
    done
    : >"$root/etc/machine-id"
    mkdir "$root/matrix"
}

make_boot_files() {
    local kernel version
    mkdir "$root/tmp/initramfs"
    cp -a "$root"/etc/initramfs-tools/. "$root/tmp/initramfs/"
    printf 'virtio_pci\nvirtio_blk\next4\n' >"$root/tmp/initramfs/modules"
    sed -i 's/^MODULES=.*/MODULES=list/' "$root/tmp/initramfs/initramfs.conf"
    mkdir -p "$root/boot/grub" "$work/boot"
    for kernel in "$root"/boot/vmlinuz-*; do
        version=${kernel##*/vmlinuz-}
        in_root mkinitramfs -d /tmp/initramfs -o "/tmp/initrd-$version" "$version"
        mv "$root/tmp/initrd-$version" "$work/boot/"
        cp "$kernel" "$work/boot/"
    done
    rm -r "$root/tmp/initramfs"
    # shellcheck disable=SC2016 # dpkg-query's
    # The menu's is the non-cloud kernel with the initial ram disk that its package made.
    version=$(chroot "$root" dpkg-query -W -f '${Depends}' linux-image-amd64 | sed 's/^linux-image-\([^ ,]*\).*/\1/')
    cat >"$root/boot/grub/grub.cfg" <<EOT
menuentry 'Debian GNU/Linux' {
	linux	/boot/vmlinuz-$version root=/dev/vda ro console=ttyS0
	initrd	/boot/initrd.img-$version
}
EOT
}

make_image() {
    truncate -s "${mib[$release]}M" "$work/image"
    mke2fs -q -F -t ext4 -E root_owner=0:0 -d "$root" "$work/image" || fail 'mke2fs failed'
    rm -rf "$out/$release.boot"
    mv "$work/boot" "$out/$release.boot"
    rm -f "$out/$release.has"
    mv "$work/image" "$out/$release.img"
    echo "${packages[*]}" >"$out/$release.packages"
}

# The workloads are put in without making the image again.
put_workloads() {
    local file
    for file in "$here"/guest/*; do
        printf 'rm /matrix/%s\nwrite %s /matrix/%s\nsif /matrix/%s mode 0100755\n' \
            "${file##*/}" "$file" "${file##*/}" "${file##*/}"
    done >"$out/$release.workloads"
    debugfs -w -f "$out/$release.workloads" "$out/$release.img" >"$log" 2>&1
    rm "$out/$release.workloads"
    [ "$(debugfs -R 'cat /matrix/init' "$out/$release.img" 2>/dev/null)" = "$(cat "$here/guest/init")" ] ||
        fail "the workloads could not be put into $out/$release.img (see $log)"
    workloads >"$out/$release.has"
}

# workloads: tells them from others.
workloads() {
    cksum "$here"/guest/*
}

release=${1:-}
[ -n "${mib[$release]:-}" ] || fail "no release '$release'; there are: ${!mib[*]}"
read -rd '' -a packages <<<"$common ${more[$release]}" || : # as words
mkdir -p "$out/cache"
out=$(cd "$out" && pwd)
log=$out/$release.log
if [ ! -f "$out/$release.img" ] || [ "$(cat "$out/$release.packages")" != "${packages[*]}" ]; then
    [ "$(id -u)" = 0 ] || fail 'debootstrap needs root'
    for tool in debootstrap mke2fs debugfs; do
        command -v $tool >/dev/null || fail "$tool is not installed; run guest-tools/install-deps.sh debian"
    done
    work=$(mktemp -d "$out/$release.XXXXXX")
    root=$work/root
    # Before anything is removed: rm must not enter a mount.
    trap 'umount "$root/proc" 2>/dev/null || :; rm -rf --one-file-system "$work"' EXIT
    echo "image: making $release, some minutes" >&2
    make_tree
    make_boot_files
    umount "$root/proc"
    make_image
fi
[ "$(cat "$out/$release.has" 2>/dev/null)" = "$(workloads)" ] || put_workloads
