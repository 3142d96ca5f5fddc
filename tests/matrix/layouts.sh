# shellcheck shell=bash disable=SC2154
# Sourced by image.sh: the same small Debian on disks that are laid out in different ways.
#
#   esp       GPT, an EFI system partition with systemd-boot's entries and the kernel, an ext4 root
#   uki       GPT, an EFI system partition with a unified kernel image, an ext4 root without /boot
#   boot      MBR, /boot on a partition of its own, an ext4 root on a logical partition
#   lvm       MBR, /boot on a partition of its own, an ext4 root in a logical volume
#   xfs-root, btrfs-root    GPT, /boot on an ext4 partition, the root on another kind
#   xfs, btrfs              GPT, all of it on that kind; on btrfs in a subvolume, as Debian's installer does
#   lvm-all   all of it in a logical volume
#   lvm-xfs   GPT, all of it in a logical volume of one partition, on XFS
layouts=(esp uki boot lvm xfs-root btrfs-root xfs btrfs lvm-all lvm-xfs)
size_mib=1536

# menu ROOT PREFIX [ARGUMENT]: a GRUB menu for the tree; where /boot is a partition of its own, PREFIX is empty.
menu() {
    cat <<EOT
menuentry 'Debian GNU/Linux' {
	linux	$2/vmlinuz-$version root=$1 ro console=ttyS0 ${3:-}
	initrd	$2/initrd.img-$version
}
EOT
}

# loop FIRST LAST: sets $device to a loop device for these MiB of $disk.
loop() {
    device=$(losetup -f --show -o $(($1 << 20)) --sizelimit $((($2 - $1) << 20)) "$disk") || fail 'no loop device'
}

# fill KIND FIRST LAST: makes a file system of the tree, without its /boot where that is $apart, in $subvolume of it if
# there is one.
fill() {
    loop "$2" "$3"
    local -a without=(--exclude=./proc/*)
    [ -z "$apart" ] || without+=(--exclude='./boot/*')
    mkfs."$1" -q "$device"
    mount -t "$1" "$device" "$work/mount"
    [ -z "$subvolume" ] || btrfs -q subvolume create "$work/mount/$subvolume"
    tar -C "$root" "${without[@]}" -c . | tar -C "$work/mount/$subvolume" -x
    echo "$fstab" >"$work/mount/$subvolume/etc/fstab"
    umount "$work/mount"
    losetup -d "$device"
}

# fill_boot FIRST LAST ROOT: an ext4 /boot
fill_boot() {
    menu "$3" '' >"$root/boot/grub/grub.cfg"
    loop "$1" "$2"
    mke2fs -q -t ext4 -d "$root/boot" "$device"
    losetup -d "$device"
}

# fill_esp FIRST LAST ROOT: as kernel-install and bootctl make it, without the loader itself.
fill_esp() {
    local esp=$work/esp files=debian/$version
    mkdir -p "$esp/loader/entries" "$esp/$files"
    cp "$root/boot/vmlinuz-$version" "$esp/$files/linux"
    cp "$root/boot/initrd.img-$version" "$esp/$files/initrd.img"
    printf '%s\n' 'title Debian' "version $version" "linux /$files/linux" "initrd /$files/initrd.img" \
        "options root=$3 ro console=ttyS0" >"$esp/loader/entries/debian-$version.conf"
    put_esp "$1" "$2"
}

# put_esp FIRST LAST: FAT of what is in $work/esp, which is removed.
put_esp() {
    loop "$1" "$2"
    mkfs.fat "$device" >/dev/null
    losetup -d "$device"
    mcopy -s -i "$disk@@$(($1 << 20))" "$work/esp"/* ::/
    rm -r "$work/esp"
}

# fill_uki FIRST LAST ROOT: an image as ukify makes it, of the stub that Debian has.
fill_uki() {
    local stub=$root/usr/lib/systemd/boot/efi/linuxx64.efi.stub
    mkdir -p "$work/esp/EFI/Linux"
    printf 'root=%s ro console=ttyS0' "$3" >"$work/cmdline"
    objcopy --add-section .osrel="$root/usr/lib/os-release" --change-section-vma .osrel=0x20000 \
        --add-section .cmdline="$work/cmdline" --change-section-vma .cmdline=0x30000 \
        --add-section .linux="$root/boot/vmlinuz-$version" --change-section-vma .linux=0x2000000 \
        --add-section .initrd="$root/boot/initrd.img-$version" --change-section-vma .initrd=0x4000000 \
        "$stub" "$work/esp/EFI/Linux/debian-$version.efi"
    put_esp "$1" "$2"
}

# logical_volume FIRST LAST: sets $lv_first to where its first MiB is on the disk. The volume is not activated,
# so that no device mapper is needed here.
logical_volume() {
    loop "$1" "$2"
    local -a lvm=(--driverloaded n --config "devices{filter=[\"a|$device|\",\"r|.*|\"]} backup{backup=0 archive=0}")
    {
        pvcreate "${lvm[@]}" --dataalignment 1m "$device"
        vgcreate "${lvm[@]}" system "$device"
        lvcreate "${lvm[@]}" -an -Zn -Wn -l 100%FREE -n root system
    } >>"$log" 2>&1 || fail "no logical volume (see $log)"
    lv_first=$(($1 + $(pvs "${lvm[@]}" --noheadings --units m --nosuffix -o pe_start "$device" | sed 's/\..*//')))
    losetup -d "$device"
}

# make_layout NAME: puts it beside the other images.
make_layout() {
    local name=$1 lv_first apart='' subvolume='' fstab='/dev/vda2 / auto defaults 0 1'
    disk=$work/disk
    rm -f "$disk"
    truncate -s ${size_mib}M "$disk"
    case $name in
    esp | uki) printf 'label: gpt\n,200M,U\n,\n' | sfdisk -q "$disk" ;;
    xfs | btrfs | xfs-root | btrfs-root) printf 'label: gpt\n,200M,L\n,\n' | sfdisk -q "$disk" ;;
    lvm-xfs) printf 'label: gpt\n,,V\n' | sfdisk -q "$disk" ;;
    boot) printf 'label: dos\n,200M,L,*\n,,E\n,,L\n' | sfdisk -q "$disk" ;;
    lvm) printf 'label: dos\n,200M,L,*\n,,8e\n' | sfdisk -q "$disk" ;;
    esac
    case $name in
    *-root | boot | lvm | uki) apart=1 ;;
    esac
    rm -f "$root/boot/grub/grub.cfg"
    case $name in
    esp)
        fill_esp 1 201 /dev/vda2
        fill ext4 201 $((size_mib - 1))
        ;;
    uki)
        fill_uki 1 201 /dev/vda2
        fill ext4 201 $((size_mib - 1))
        ;;
    boot)
        fstab='/dev/vda5 / ext4 defaults 0 1'
        fill_boot 1 201 /dev/vda5
        fill ext4 202 $((size_mib - 1))
        ;;
    lvm)
        fstab='/dev/system/root / ext4 defaults 0 1'
        fill_boot 1 201 /dev/mapper/system-root
        logical_volume 201 $((size_mib - 1))
        fill ext4 "$lv_first" $((size_mib - 8))
        ;;
    lvm-all)
        fstab='/dev/system/root / ext4 defaults 0 1'
        menu /dev/mapper/system-root /boot >"$root/boot/grub/grub.cfg"
        logical_volume 0 $size_mib
        fill ext4 "$lv_first" $((size_mib - 8))
        ;;
    lvm-xfs)
        fstab='/dev/system/root / xfs defaults 0 1'
        menu /dev/mapper/system-root /boot >"$root/boot/grub/grub.cfg"
        logical_volume 1 $((size_mib - 1))
        fill xfs "$lv_first" $((size_mib - 8))
        ;;
    btrfs)
        subvolume=@rootfs
        menu /dev/vda2 /$subvolume/boot rootflags=subvol=$subvolume >"$root/boot/grub/grub.cfg"
        fill btrfs 201 $((size_mib - 1))
        ;;
    *-root)
        fill_boot 1 201 /dev/vda2
        fill "${name%-root}" 201 $((size_mib - 1))
        ;;
    *)
        menu /dev/vda2 /boot >"$root/boot/grub/grub.cfg"
        fill "$name" 201 $((size_mib - 1))
        ;;
    esac
    mv "$disk" "$out/$name.img"
}

make_layouts() {
    local name
    mkdir "$work/mount"
    for name in "${layouts[@]}"; do
        make_layout "$name"
    done
}
