# shellcheck shell=bash
# QEMU (TCG) and its record/replay, which dittovm is measured beside. Sourced behind common.sh.

# rr_run HOW ARGUMENT...: a machine to its end, plain, recorded in rr.bin, or replayed from there. Its console is in
# run.out; $rr_seconds is what it took. Status 124: it stood still, as replays with a network of QEMU 7.2 do.
rr_run() {
    local how=$1 start status=0 icount=()
    shift
    case $how in
    recorded) icount=(-icount "shift=auto,rr=record,rrfile=rr.bin") ;;
    replayed) icount=(-icount "shift=auto,rr=replay,rrfile=rr.bin") ;;
    esac
    start=$(date +%s%N)
    bounded "${RR_PATIENCE:-1200}" qemu-system-x86_64 -accel tcg "${icount[@]}" -display none -no-reboot -serial file:run.out "$@" \
        </dev/null >run.err 2>&1 || status=$?
    # shellcheck disable=SC2034
    rr_seconds=$(awk "BEGIN { print ($(date +%s%N) - $start) / 1e9 }")
    return $status
}

# rr_disk FILE: adds it to the arguments $rr_disks, as one whose requests are recorded; what is written is forgotten.
rr_disk() {
    local id=disk${#rr_disks[@]}
    rr_disks+=(-drive "file=$1,format=raw,if=none,snapshot=on,id=$id"
        -drive "driver=blkreplay,if=none,image=$id,id=$id-replayed" -device "virtio-blk-pci,drive=$id-replayed")
}

# rr_boot_files: the kernel, initrd and cmdline of $IMAGE, as files.
rr_boot_files() {
    image_file '^vmlinuz-' vmlinuz && image_file '^initrd.img-' initrd || return 1
    debugfs -R "cat /boot/grub/grub.cfg" "$IMAGE?offset=1048576" 2>/dev/null |
        sed -n 's|.*linux[ 	]*/boot/vmlinuz-[^ ]* ||p' >cmdline
    [ -s cmdline ]
}
