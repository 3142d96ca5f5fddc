#!/usr/bin/env bats
# Kernels that are not on ext: where else distributions put them. The kernel is a small guest.
load helper

setup() {
    mkdir "$BATS_TEST_TMPDIR/work" && cd "$BATS_TEST_TMPDIR/work" || return 1
    PATH=$PATH:/usr/sbin:/sbin
    command -v grub-fstest >/dev/null || skip 'grub-common is not installed'
}

need() {
    command -v "$1" >/dev/null || skip "$2 is not installed"
}

# boots IMAGE WHAT: and is recorded, the recording says where from, and verify finds it the same.
boots() {
    ditto 0 run --quiet -o out.ditto --force "$1"
    [ "$(tr -d '\r' <<<"$output" | head -n 1)" = "$(<hello.said)" ]
    ditto 0 info out.ditto
    [[ $output == *"$1: $2"* ]] || {
        echo "$output"
        return 1
    }
    ditto 0 verify out.ditto
}

# said: what the guest says first, when it is given directly.
said() {
    ditto 0 run --quiet --kernel "$HELLO_ELF"
    tr -d '\r' <<<"$output" | head -n 1 >hello.said
    [ -s hello.said ]
}

# esp: GPT in disk.img, of which the first partition is for EFI: FAT, with what is in ./esp.
esp() {
    need sfdisk fdisk
    need mkfs.fat dosfstools
    need mcopy mtools
    truncate -s 16M disk.img
    printf 'label: gpt\n,8M,U\n,\n' | sfdisk -q disk.img
    truncate -s 8M fat
    mkfs.fat fat >/dev/null
    mcopy -s -i fat esp/* ::/
    dd if=fat of=disk.img bs=1M seek=1 conv=notrunc status=none
}

@test "systemd-boot's entries on an EFI partition, in a raw image and in qcow2" {
    said
    mkdir -p esp/loader/entries esp/debian/6.1 esp/debian/6.2
    printf 'default debian-6.1*\n' >esp/loader/loader.conf
    printf 'linux /debian/6.2/linux\nversion 6.2\n' >esp/loader/entries/debian-6.2.conf
    printf 'linux /debian/6.1/linux\nversion 6.1\noptions from=entry\n' >esp/loader/entries/debian-6.1.conf
    cp "$HELLO_ELF" esp/debian/6.1/linux
    echo none >esp/debian/6.2/linux
    esp
    # Found outside of the host that it runs in.
    DITTO_SERVER='' boots disk.img 'boot loader entry, /debian/6.1/linux'
    ditto 0 info out.ditto
    [[ $output == *'command line  from=entry '* ]]
    # Nothing of what was handed in is left.
    [ -z "$(find /tmp -maxdepth 1 -name 'ditto-boot.*' -newer disk.img)" ]
    command -v qemu-img >/dev/null || return 0
    qemu-img convert -O qcow2 disk.img disk.qcow2
    boots disk.qcow2 'boot loader entry, /debian/6.1/linux'
}

@test "a unified kernel image on an EFI partition" {
    need objcopy binutils
    said
    mkdir -p esp/EFI/Linux
    # A program for UEFI: what there is of a stub does not matter here.
    echo 'from=uki' >cmdline
    printf 'begin' >begin
    objcopy -I binary -O elf64-x86-64 begin begin.o
    objcopy -I elf64-x86-64 -O pei-x86-64 --add-section .linux="$HELLO_ELF" --change-section-vma .linux=0x20000 \
        --add-section .cmdline=cmdline --change-section-vma .cmdline=0x10000 begin.o esp/EFI/Linux/debian-6.1.efi
    esp
    boots disk.img 'unified kernel image, /EFI/Linux/debian-6.1.efi'
    ditto 0 info out.ditto
    [[ $output == *'command line  from=uki '* ]]
}

@test "GRUB on btrfs, in a subvolume" {
    need mkfs.btrfs btrfs-progs
    said
    mkdir -p root/@rootfs/boot/grub root/@rootfs/etc
    cp "$HELLO_ELF" root/@rootfs/boot/vmlinuz
    printf 'menuentry x {\n linux /@rootfs/boot/vmlinuz root=/dev/vda\n}\n' >root/@rootfs/boot/grub/grub.cfg
    truncate -s 128M disk.img
    mkfs.btrfs -q --rootdir root disk.img 2>/dev/null
    boots disk.img 'GRUB, /@rootfs/boot/vmlinuz'
}

@test "GRUB on XFS" {
    need mkfs.xfs xfsprogs
    said
    printf 'menuentry x {\n linux /vmlinuz\n}\n' >grub.cfg
    printf '%s\n' / '0 0' 'd--755 0 0' "vmlinuz ---644 0 0 $HELLO_ELF" 'grub d--755 0 0' \
        "grub.cfg ---644 0 0 $PWD/grub.cfg" '$' '$' >protocol
    truncate -s 320M disk.img
    mkfs.xfs -q -p protocol disk.img
    boots disk.img 'GRUB, /vmlinuz'
}
