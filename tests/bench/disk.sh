#!/bin/bash
# disk.sh [PAIRS [SECONDS]]: what recording costs a disk, plain and recorded in turn, PAIRS times (default 3), by fio in
# a Debian, SECONDS (default 10) for each: sequential reads of 64 KiB, random ones of 4 KiB, one at a time and 16; how
# much a process computes beside 20 reads of the disk a second, by what it computes beside as many of memory, also where
# the disk takes 20 ms for each; how long all but the last takes, and its replay. Beside it QEMU's record/replay
# (lib/rr.sh), whose disk is never slow. Medians on stdout. OTHER=another-dittovm is measured, too.
set -u
tree=$(cd "$(dirname "$0")/../.." && pwd)
. "$tree/tests/lib/common.sh"
. "$tree/tests/lib/rr.sh"
export MATRIX=$BUILD/matrix
pairs=${1:-3} seconds=${2:-10}
work=$(mktemp -d "$BUILD/bench-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

note() {
    echo "$2" >>"$1.figures"
}

# figure WHAT FIELD: of the line 'took WHAT ...' on the console
figure() {
    tr -d '\r' <run.out | awk -v what="$1" -v field="$2" '$1 == "took" && $2 == what { print $field; exit }'
}

append="root=/dev/vda rw init=/matrix/init matrix.run=world,disk,$seconds"

# boot WHAT DITTO ARGUMENT...
boot() {
    bounded 900 "$2" run --json "${@:3}" --memory 512M --kernel "$kernel" --initrd "$initrd" \
        --disk "$MATRIX/world.img" --disk blob,ro --append "$append$1" </dev/null >run.out 2>run.err
    has_run
}

has_run() {
    grep -q 'took disk' run.out || { tail -n 5 run.out run.err >&2 && exit 1; }
}

note_kept() {
    note "$1" "$(awk -v a="$(figure memory 3)" -v b="$(figure disk 3)" 'BEGIN { print b / a }')"
}

# note_speeds NAME: also what a computing process kept
note_speeds() {
    note "$1.sequential" "$(figure sequential 3 | awk '{ print $1 / 1024 }')"
    note "$1.random" "$(figure random 4)"
    note "$1.deep" "$(figure deep 4)"
    note_kept "$1.kept"
}

# run NAME DITTO ARGUMENT...
run() {
    boot '' "${@:2}"
    note_speeds "$1"
    note "$1" "$(json_field seconds run.err)"
    [ ! -e run.ditto ] || {
        bounded 900 "$DITTO" verify --json run.ditto >verify.out 2>/dev/null || exit 1
        note "$1.replayed" "$(json_field seconds verify.out)"
    }
    LD_PRELOAD=$BUILD/tools/slow_disk.so SLOW_DISK=$PWD/blob boot ,compute "${@:2}"
    note_kept "$1.slow"
}

# qemu HOW: as rr_run
qemu() {
    rr_run "$1" -m 512 -nic none -kernel "$kernel" -initrd "$initrd" "${rr_disks[@]}" \
        -append "$append console=ttyS0"
    has_run
    note_speeds "qemu.$1"
    note "qemu.$1" "$rr_seconds"
}

bash "$tree/tests/matrix/image.sh" world || exit 1
head -c $((256 << 20)) /dev/urandom >blob
kernel=$(echo "$MATRIX"/world.boot/vmlinuz-*-amd64) initrd=$(echo "$MATRIX"/world.boot/initrd.img-*-amd64)
rr_disks=()
rr_disk "$MATRIX/world.img"
rr_disk blob
for ((i = 0; i < pairs; i++)); do
    rm -f run.ditto
    run plain "$DITTO"
    [ -z "${OTHER:-}" ] || run other "$OTHER"
    run recorded "$DITTO" --force -o run.ditto
    [ -z "${OTHER:-}" ] || run other.recorded "$OTHER" --force -o run.ditto
    for how in plain recorded replayed; do
        qemu $how
    done
done
of() {
    median <"$1.figures"
}
echo '| | sequential, MB/s | random/s | 16 at once/s | compute kept | slow disk | the whole run, s |'
echo '|---|---|---|---|---|---|---|'
for name in plain recorded other other.recorded qemu.plain qemu.recorded; do
    [ ! -e $name.figures ] || {
        printf '| %s | %.1f | %.0f | %.0f | %.2f |' $name "$(of $name.sequential)" "$(of $name.random)" \
            "$(of $name.deep)" "$(of $name.kept)"
        [ -e $name.slow.figures ] && printf ' %.2f |' "$(of $name.slow)" || printf ' |'
        printf ' %.1f |\n' "$(of $name)"
    }
done
printf '| replayed | | | | | | %.1f |\n| qemu.replayed | | | | | | %.1f |\n' "$(of recorded.replayed)" "$(of qemu.replayed)"
