#!/bin/sh
# Builds a disk image of a stock Debian 12: systemd, its own kernel package and the initial ram disk
# its own initramfs-tools made, login on ttyS0 as root with the password "ditto". The GRUB menu is
# written by hand, since only dittovm's own boot loader reads it. Needs root, as debootstrap does.
set -eu
umask 022

here=$(cd "$(dirname "$0")" && pwd)
tree=$(dirname "$(dirname "$here")")
. "$here/mbr.sh"
cache=$tree/build/cache
mirror=http://deb.debian.org/debian
suite=bookworm
uuid=d1770f11-0c0d-4e0f-9a1b-5e7ec0de0003
image_mib=2048 partition_start_sectors=2048
packages='systemd-sysv udev dbus libpam-systemd kmod iproute2 procps e2fsprogs
    less initramfs-tools zstd linux-image-cloud-amd64'
# Units that wait for a network or start on their own at some hour.
masked='apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer fstrim.timer
    e2scrub_all.timer systemd-networkd-wait-online.service'

usage() {
    cat <<EOT
usage: build-debootstrap.sh [--cache DIR] [--mirror URL] [--suite NAME] OUT.img
  OUT.img       the image to write, $image_mib MiB, sparse; left alone if newer than this script
  --cache DIR   where downloaded packages are kept (default: build/cache)
  --mirror URL  default: $mirror
  --suite NAME  default: $suite
EOT
}

fail() {
    echo "build-debootstrap: $*" >&2
    exit 1
}

while [ $# -gt 0 ]; do
    case $1 in
    --cache | --mirror | --suite)
        [ $# -ge 2 ] || fail "$1 needs a value (see --help)"
        case $1 in
        --cache) cache=$2 ;;
        --mirror) mirror=$2 ;;
        --suite) suite=$2 ;;
        esac
        shift
        ;;
    -h | --help) usage && exit 0 ;;
    -*) fail "unknown option '$1' (see --help)" ;;
    *)
        [ -z "${out:-}" ] || fail "one OUT.img, not '$out' and '$1'"
        out=$1
        ;;
    esac
    shift
done
[ -n "${out:-}" ] || { usage >&2 && exit 2; }
PATH=$PATH:/usr/sbin:/sbin
if [ -f "$out" ] && [ -z "$(find "$0" "$here/mbr.sh" -newer "$out")" ]; then
    exit 0
fi
[ "$(id -u)" = 0 ] || fail "debootstrap needs root; run it with sudo"
for tool in debootstrap mke2fs; do
    command -v $tool >/dev/null ||
        fail "$tool is not installed; run guest-tools/install-deps.sh debian"
done

mkdir -p "$(dirname "$out")" "$cache/debootstrap"
out=$(cd "$(dirname "$out")" && pwd)/$(basename "$out")
cache=$(cd "$cache" && pwd)
work=$(mktemp -d "$out.XXXXXX")
# debootstrap unmounts what it mounted in the tree; should it die first, rm must not enter a mount.
trap 'umount "$work/root/proc" "$work/root/sys" 2>/dev/null || :
rm -rf --one-file-system "$work"' EXIT
trap 'exit 1' INT TERM
root=$work/root

# debootstrap's list is separated by commas.
included=$(echo $packages | tr ' ' ',')
debootstrap --variant=minbase --cache-dir="$cache/debootstrap" --include="$included" \
    "$suite" "$root" "$mirror" >"$work/log" 2>&1 || {
    cp "$work/log" "$out.log"
    fail "debootstrap failed: $(tail -n 1 "$work/log") (all of it in $out.log)"
}
rm -f "$root"/var/cache/apt/archives/*.deb

echo ditto >"$root/etc/hostname"
echo '127.0.0.1 localhost ditto' >"$root/etc/hosts"
echo "UUID=$uuid / ext4 errors=remount-ro 0 1" >"$root/etc/fstab"
printf '[Match]\nName=en* eth*\n[Network]\nDHCP=yes\n' >"$root/etc/systemd/network/wired.network"
chroot "$root" systemctl enable -q systemd-networkd.service
# debootstrap copied the host's; this is the name server of a user-mode network.
echo 'nameserver 10.0.2.3' >"$root/etc/resolv.conf"
echo root:ditto | chroot "$root" chpasswd
for unit in $masked; do
    ln -sf /dev/null "$root/etc/systemd/system/$unit"
done
# systemd-getty-generator starts the login on the console that the kernel command line names.
: >"$root/etc/machine-id"

vmlinuz=$(ls "$root"/boot/vmlinuz-* 2>/dev/null) || fail "the tree has no kernel; see the packages"
version=${vmlinuz##*/vmlinuz-}
[ -f "$root/boot/initrd.img-$version" ] || fail "initramfs-tools made no initrd.img-$version"
mkdir -p "$root/boot/grub"
cat >"$root/boot/grub/grub.cfg" <<EOT
set default="0"
set timeout=0
menuentry 'Debian GNU/Linux' --class debian --class gnu-linux {
	insmod part_msdos
	insmod ext2
	search --no-floppy --fs-uuid --set=root $uuid
	linux	/boot/vmlinuz-$version root=UUID=$uuid ro console=ttyS0
	initrd	/boot/initrd.img-$version
}
EOT

offset=$((partition_start_sectors * 512))
truncate -s ${image_mib}M "$work/image"
mke2fs -q -F -t ext4 -U $uuid -L debian-root -E "offset=$offset,root_owner=0:0" -d "$root" \
    "$work/image" $((image_mib * 1024 - offset / 1024))k ||
    fail "mke2fs could not make the file system"
write_partition_table "$work/image" $image_mib $partition_start_sectors
mv "$work/image" "$out"
