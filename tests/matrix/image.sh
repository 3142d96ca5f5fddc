#!/bin/bash
# image.sh IMAGE: makes a disk for the matrix of guests, build/matrix/IMAGE.img. Of a release (bullseye,
# bookworm, trixie, sid): one ext4 file system with what the workloads need, this directory's guest/ as /matrix,
# and a GRUB menu; beside it, in build/matrix/RELEASE.boot, its kernels and initial ram disks, made by Debian's
# own tools with the modules of these disks only, which boot quicker. World is bookworm with servers, cloud
# one with cloud-init, for tests/world.sh. Of a layout (layouts.sh): a small Debian laid out so on a disk. Needs root, as debootstrap does, and loop
# devices; done again when the packages below change. MIRROR is where from.
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
    [bookworm]='linux-image-cloud-amd64 linux-image-rt-amd64 gcc libc6-dev nodejs openjdk-17-jdk-headless
        luajit golang-go postgresql redis-server stress-ng fio cryptsetup-bin kexec-tools linux-perf bpftrace
        gdb binutils xz-utils make linux-headers-amd64'
    [trixie]=''
    [sid]=''
    [layouts]='lvm2 btrfs-progs xfsprogs dosfstools systemd-boot-efi'
    [world]='nginx-light openssh-server postgresql fio'
    [cloud]='cloud-init openssh-server systemd-resolved netplan.io sudo'
)
kernel_source=linux-source-6.1 # of bookworm
declare -A mib=([bullseye]=2048 [bookworm]=5120 [trixie]=2048 [sid]=2048 [layouts]=2048 [world]=2048 [cloud]=2048)

fail() {
    echo "image: $*" >&2
    exit 1
}

# in_root COMMAND...: in the tree, with its output in the log.
in_root() {
    chroot "$root" "$@" >>"$log" 2>&1 || fail "'$*' failed in the tree: $(tail -n 1 "$log") (all of it in $log)"
}

make_tree() {
    debootstrap --variant=minbase --cache-dir="$out/cache" "$suite" "$root" "$mirror" >"$log" 2>&1 ||
        fail "debootstrap failed: $(tail -n 1 "$log") (all of it in $log)"
    mount -t proc proc "$root/proc" # Java's packages want it
    # Nothing is started while packages are installed.
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
    chmod 755 "$root/usr/sbin/policy-rc.d"
    in_root apt-get -o Acquire::Check-Valid-Until=false update -q # a mirror that stands still is fine
    in_root apt-get install -y -q --no-install-recommends initramfs-tools
    sed -i 's/^MODULES=.*/MODULES=list/' "$root/etc/initramfs-tools/initramfs.conf"
    printf '%s\n' virtio_pci virtio_blk virtio_net ext4 xfs btrfs dm-mod >"$root/etc/initramfs-tools/modules"
    in_root apt-get install -y -q --no-install-recommends "${packages[@]}"
    [ "$release" != bookworm ] || in_root sh -c "cd /tmp && apt-get download -q $kernel_source"
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

# make_torture: the torture tests of the kernel's source, which Debian does not build, as modules for the kernel that is
# for all machines. Their package of sources is not kept in the tree.
make_torture() {
    local at=$root/matrix/modules
    mkdir -p "$at/rcu" "$work/source"
    dpkg-deb --fsys-tarfile "$root/tmp/$kernel_source"_*.deb | tar -xO "./usr/src/$kernel_source.tar.xz" |
        tar -x -J -C "$work/source" --strip-components=1 --wildcards '*/kernel/torture.c' '*/kernel/rcu/rcu*.[ch]' \
            '*/kernel/locking/locktorture.c'
    rm "$root/tmp/$kernel_source"_*.deb
    cp "$work"/source/kernel/{torture.c,rcu/rcutorture.c,locking/locktorture.c} "$at/"
    cp "$work/source/kernel/rcu/rcu.h" "$at/rcu/"
    # Sources and headers are of two versions, and one function is not exported: only type "trivial" wants it.
    cat >"$at/Makefile" <<'MAKEFILE'
obj-m := torture.o rcutorture.o locktorture.o
ccflags-y := -I$(src) -I$(src)/rcu -Drcu_momentary_eqs=rcu_momentary_dyntick_idle \
    '-Drcutorture_sched_setaffinity(pid, mask)=0' -Wno-unused-value
MAKEFILE
    in_root make -C "/usr/src/linux-headers-$version" M=/matrix/modules modules
    find "$at" -type f ! -name '*.ko' -delete
    rm -r "$at/rcu"
}

# write_menu: and sets $version to the kernel's that is for all machines.
write_menu() {
    # shellcheck disable=SC2016 # dpkg-query's
    version=$(chroot "$root" dpkg-query -W -f '${Depends}' linux-image-amd64 | sed 's/^linux-image-\([^ ,]*\).*/\1/')
    mkdir -p "$root/boot/grub"
    menu /dev/vda /boot >"$root/boot/grub/grub.cfg"
}

make_image() {
    truncate -s "${mib[$release]}M" "$work/image"
    mke2fs -q -F -t ext4 -E root_owner=0:0 -d "$root" "$work/image" || fail 'mke2fs failed'
    rm -rf "$out/$release.boot" "$out/$release.has"
    mkdir "$out/$release.boot"
    cp "$root"/boot/vmlinuz-* "$root"/boot/initrd.img-* "$out/$release.boot/"
    mv "$work/image" "$out/$release.img"
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

. "$here/layouts.sh"
release=${1:-}
image=$release
[[ " ${layouts[*]} " != *" $release "* ]] || release=layouts
[ -n "${mib[$release]:-}" ] || fail "no image '$release'; there are: ${!mib[*]} ${layouts[*]}"
suite=$release
[[ " layouts world cloud " != *" $release "* ]] || suite=bookworm
read -rd '' -a packages <<<"$common ${more[$release]}" || : # as words
mkdir -p "$out/cache"
out=$(cd "$out" && pwd)
log=$out/$release.log
exec 8>"$out/$release.lock"
flock 8 # several may want it
if [ ! -f "$out/$image.img" ] || [ "$(cat "$out/$release.packages")" != "${packages[*]}" ]; then
    [ "$(id -u)" = 0 ] || fail 'debootstrap needs root'
    for tool in debootstrap mke2fs sfdisk mkfs.fat mcopy mkfs.xfs mkfs.btrfs lvcreate objcopy; do
        command -v $tool >/dev/null || fail "$tool is not installed; run guest-tools/install-deps.sh debian"
    done
    work=$(mktemp -d "$out/$release.XXXXXX")
    root=$work/root
    # Before anything is removed: rm must not enter a mount.
    trap 'umount "$root/proc" "$work/mount" 2>/dev/null || :; rm -rf --one-file-system "$work"' EXIT
    echo "image: making $release, some minutes" >&2
    make_tree
    write_menu
    [ "$release" != bookworm ] || make_torture
    umount "$root/proc"
    if [ "$release" = layouts ]; then make_layouts; else make_image; fi
    echo "${packages[*]}" >"$out/$release.packages"
fi
[ "$release" = layouts ] || [ "$(cat "$out/$release.has" 2>/dev/null)" = "$(workloads)" ] || put_workloads
