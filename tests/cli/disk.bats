#!/usr/bin/env bats
# `dittovm disk`: what was on a disk, at places of a recording.
load helper

sum_of() {
    md5sum | cut -c-32
}

@test "the root file system at two places and the end, whole; what is not whole leaves nothing" {
    local name place=
    booted
    # A test of the guest's: what was written comes to the disk with sync.
    echo 'echo first >/f1; sync; sleep 3; echo second >/f2; sync; sleep 3; echo done; exit' >keys
    DITTO_IN=$PWD/keys ditto 0 run --quiet --from "$booted" -o two.ditto --checkpoint-every 1
    for name in $(snapshots_of two.ditto); do
        ditto 0 disk "two.ditto@$name" -o "at-$name.img"
        [ -n "$(file_on "at-$name.img" /f1)" ] || continue
        [ "$(file_on "at-$name.img" /f1)" = first ]
        [ -z "$(file_on "at-$name.img" /f2)" ] || break
        place=$name
    done
    echo "between the two: snapshot $place; behind: $name"
    [ -n "$place" ] && [ "$(file_on "at-$name.img" /f2)" = second ]
    rm at-*.img

    ditto 0 disk two.ditto@1000 -o early.raw # before the first snapshot
    [ -z "$(file_on early.raw /f1)" ]
    ditto 0 disk --json -o end.qcow2 two.ditto
    [ "$(jq -r '"\(.output) \(.format) \(.number) \(.size)"' <<<"$output")" = "end.qcow2 qcow2 1 $(stat -c %s "$IMAGE")" ]
    [ "$(jq .sync <<<"$output")" = "$(dump_last two.ditto)" ]
    qemu-img check -q end.qcow2
    [ "$(qemu-img info --output=json end.qcow2 | jq '.["backing-filename"]')" = null ]
    qemu-img convert -O raw end.qcow2 end.img
    [ "$(file_on end.img /f2)" = second ]

    # Stopped, and where there is no room.
    rm early.raw end.qcow2 end.img
    (
        unset DITTO_SERVER
        "$DITTO" disk two.ditto -o stopped.img >stopped.out 2>stopped.err 3>&- &
        pid=$!
        sleep 2
        kill -TERM $pid
        ! wait $pid
    )
    ! ls stopped.img*
    [ "$(id -u)" = 0 ] || skip 'only root can mount a small file system'
    mkdir small
    mount -t tmpfs -o size=4m tmpfs small || skip 'file systems cannot be mounted here'
    for name in full.raw full.qcow2; do
        run --separate-stderr bounded 120 "$DITTO" disk two.ditto -o small/$name
        echo "$stderr"
        [ "$status" = 1 ] && [ -z "$(ls small)" ] || break
    done
    umount small
    one_error 'cannot write to small/full.qcow2'
}

dump_last() {
    "$DITTO" dump "$1" | awk '/^ *[0-9]+  sync/ { last = $1 } END { print last }'
}

@test "several disks: the one that was asked for, as --write-through had it, of images of all kinds, moved" {
    head -c 1000000 /dev/urandom >b.img
    head -c 300032 /dev/urandom | tee c.plain >c.raw
    qemu-img convert -f raw -O qcow2 c.raw c.qcow2
    cp "$IMAGE" own.img
    mkdir before
    cp own.img b.img c.qcow2 before
    ditto 0 run --quiet --write-through -o w.ditto --disk b.img --disk c.qcow2 --append ditto.script=disks own.img
    local moved=(--disk before/own.img --disk before/b.img --disk before/c.qcow2)
    ditto 2 disk w.ditto "${moved[@]}" -o out.raw
    one_error 'has several disks; choose with --number: 1 (own.img), 2 (b.img), 3 (c.qcow2)'
    ditto 2 disk w.ditto "${moved[@]}" -o out.raw --number 4
    one_error 'has 3 disks; there is no number 4'
    ditto 1 disk w.ditto "${moved[@]:0:4}" -o out.raw --number 2
    one_error 'has 3 disks: say where all are'
    ditto 0 disk w.ditto "${moved[@]}" -o out.raw --number 1
    cmp out.raw own.img
    [ "$(stat -c %b out.raw)" -lt $(($(stat -c %s out.raw) / 512 / 2)) ] # it is sparse
    ditto 0 disk w.ditto "${moved[@]}" -o out.qcow2 --number 2
    qemu-img convert -O raw out.qcow2 out2.raw
    cmp -n 999936 out2.raw b.img
    ! cmp -s -n 999936 b.img before/b.img
    ditto 0 disk w.ditto "${moved[@]}" -o third --format raw --number 3
    qemu-img convert -O raw c.qcow2 c.now
    cmp third c.now
    ! cmp -s third c.plain
    # At the beginning they are what they were.
    ditto 0 disk w.ditto@1 "${moved[@]}" -o first.raw --number 2
    cmp first.raw <(head -c 999936 before/b.img)
}

@test "what cannot be is told in a line" {
    small_recording none.ditto
    ditto 1 disk none.ditto -o x.raw
    one_error 'the machine in none.ditto has no disk'
    head -c 1000000 /dev/urandom >disk.img
    ditto 0 run --quiet -o a.ditto --memory 32M --kernel "$BUILD/guests/count-user.elf" --append ticks=20 disk.img
    ditto 2 disk a.ditto
    one_error 'give -o IMG'
    ditto 2 disk a.ditto -o x
    one_error "does not say the image's format; give --format"
    ditto 2 disk a.ditto -o x --format vmdk
    one_error '--format takes qcow2 or raw'
    ditto 1 disk a.ditto@99999999 -o x.raw
    one_error 'there is no 99999999'
    ditto 1 disk a.ditto@half -o x.raw
    one_error "has no snapshot"
    ditto 1 disk a.ditto -o /nowhere/x.raw
    one_error 'cannot make /nowhere/x.raw'
    ditto 1 disk a.ditto -o /dev/null --format raw --force
    one_error 'it is no file'
    cp disk.img other.img
    ditto 1 disk a.ditto -o other.img
    one_error 'other.img exists; give --force'
    ditto 2 disk a.ditto -o disk.img --force
    one_error 'disk.img is what the image is made of'
    ditto 2 disk a.ditto -o a.ditto --format raw --force
    one_error 'a.ditto is what the image is made of'
    ditto 0 disk a.ditto -o other.img --force
    [[ $output == *'other.img, raw: disk 1 as it was at sync point '*', the end: 999936 bytes'* ]]
    cmp other.img <(head -c 999936 disk.img)
    mv disk.img moved.img
    ditto 1 disk a.ditto -o x.raw
    one_error 'cannot open .*disk.img, the disk image that was recorded with'
    ditto 0 disk a.ditto@10 --disk moved.img -o x.raw
    ditto 0 run --quiet -o smp.ditto --memory 32M --cpus 2 --kernel "$BUILD/guests/smp-count.elf" moved.img
    ditto 1 disk smp.ditto -o y.raw
    one_error 'has several CPUs'
    # One that is larger than its image, and cannot be written to: the other one is meant.
    qemu-img create -q -f qcow2 q.img 1M
    ditto 0 run --quiet -o b.ditto --memory 32M --kernel "$BUILD/guests/count-user.elf" --append ticks=20 \
        --disk q.img,format=raw --disk moved.img,ro,size=3M
    ditto 0 disk b.ditto -o z.raw --number 2
    cmp z.raw <(head -c 999936 moved.img; head -c $((3145728 - 999936)) /dev/zero)
    # A guest does not choose what its image is taken for.
    ditto 1 disk b.ditto -o y.raw
    one_error 'y.raw would be taken for a qcow2 image.*give --format qcow2'
    nothing_written a.ditto b.ditto moved.img none.ditto other.img q.img smp.ditto x.raw z.raw
}
