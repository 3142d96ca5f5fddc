#!/usr/bin/env bats
# Disk images that are not raw.
load helper

# What they want is not in the suite's host for many runs.
setup() {
    mkdir "$BATS_TEST_TMPDIR/work" && cd "$BATS_TEST_TMPDIR/work" || return 1
    command -v qemu-img >/dev/null || skip 'qemu-utils is not installed'
}

@test "qcow2, compressed, with two backing files, boots; and goes live without them being changed" {
    local place
    qemu-img convert -O qcow2 -c "$IMAGE" base.qcow2
    qemu-img create -q -f qcow2 -b base.qcow2 -F qcow2 middle.qcow2
    qemu-img create -q -f qcow2 -b middle.qcow2 -F qcow2 top.qcow2
    md5sum ./*.qcow2 >before
    ditto 0 run --quiet -o q.ditto --checkpoint-every 3 --append ditto.script=hello top.qcow2
    tr -d '\r' <<<"$output" | grep -q 'ditto: hello ended with status 0'
    place=$(snapshots_of q.ditto | tail -n 1)
    ditto 0 run --quiet --from "q.ditto@$place" -o live.ditto
    ditto 0 verify live.ditto
    md5sum -c --quiet before
    rm ./*.qcow2
    ditto 0 verify q.ditto
}

@test "vmdk, vdi, vhdx, vhd and qcow2 packed by zstd, as further disks" {
    head -c 999936 /dev/urandom >plain
    truncate -s 1M plain # vhd has whole cylinders
    local format name
    local -a disks=()
    for format in vmdk vdi vhdx 'vpc -o subformat=dynamic,force_size=on' 'qcow2 -c -o compression_type=zstd'; do
        # shellcheck disable=SC2086 # words
        qemu-img convert -O $format plain "${format%% *}.img"
        disks+=(--disk "${format%% *}.img")
    done
    ditto 0 run --quiet -o formats.ditto "${disks[@]}" --append ditto.script=disks "$IMAGE"
    tr -d '\r' <<<"$output" >said
    for name in b c d e f; do
        grep -q "before vd$name: [0-9]* sectors, .* sum $(md5sum <plain | cut -c-32)" said
    done
    ! grep -q "after vd[b-f]: .* sum $(md5sum <plain | cut -c-32)" said
    ditto 0 verify formats.ditto
}

@test "--write-through into qcow2" {
    head -c 1000448 /dev/urandom >plain
    qemu-img convert -O qcow2 plain w.qcow2
    cp "$IMAGE" own.img
    ditto 0 run --quiet --write-through --disk w.qcow2 --append ditto.script=disks own.img
    tr -d '\r' <<<"$output" >said
    qemu-img convert -O raw w.qcow2 written
    ! cmp -s plain written
    grep -q "after vdb: .* sum $(md5sum <written | cut -c-32)" said
}

@test "an image that is said to be raw is, whatever it begins with, and goes live so" {
    qemu-img create -q -f qcow2 q.img 1M
    ditto 0 run --quiet -o raw.ditto --disk q.img,format=raw --append ditto.script=disks "$IMAGE"
    tr -d '\r' <<<"$output" | grep -q "before vdb: $(($(stat -c %s q.img) / 512)) sectors, "
    ditto 0 run --quiet --from raw.ditto@20000
    tr -d '\r' <<<"$output" | grep -q "after vdb: $(($(stat -c %s q.img) / 512)) sectors, "
    cp q.img a:colon.qcow2
    ditto 0 run --quiet --disk a:colon.qcow2 --append ditto.script=disks "$IMAGE"
    tr -d '\r' <<<"$output" | grep -q 'before vdb: 2048 sectors, '
}

# said TEXT: one line of stderr is this message; none where TEXT is ''.
said() {
    local lines
    lines=$(grep -v 'running in the emulated KVM host\|this emulated CPU' <<<"$stderr" || true)
    [ -n "$1" ] || { [ -z "$lines" ] || { echo "$lines" && false; }; return; }
    [ "$(wc -l <<<"$lines")" = 1 ] && grep -q "^dittovm: .*$1" <<<"$lines" || { echo "not '$1': $lines" && false; }
}

@test "an image or a backing file that has changed since is told of in a line" {
    unset DITTO_SERVER # a host that has seen a file does not look at its time again
    head -c 1000448 /dev/urandom >plain.img
    qemu-img convert -f raw -O qcow2 plain.img base.qcow2
    qemu-img create -q -f qcow2 -b base.qcow2 -F qcow2 middle.qcow2
    qemu-img create -q -f qcow2 -b "$PWD/middle.qcow2" -F qcow2 top.qcow2
    mkdir copies
    cp -p base.qcow2 middle.qcow2 copies
    qemu-img create -q -f qcow2 -b middle.qcow2 -F qcow2 copies/top.qcow2
    local count=(--memory 32M --kernel "$BUILD/guests/count-user.elf" --append ticks=20)
    ditto 0 run --quiet -o a.ditto "${count[@]}" --disk plain.img --disk top.qcow2
    said ''
    ditto 0 run --quiet --from a.ditto@10
    said ''
    # A copy, whose backing files have their times; and then not.
    ditto 0 run --quiet --from a.ditto@10 --disk plain.img --disk copies/top.qcow2
    said ''
    touch copies/base.qcow2
    ditto 0 run --quiet --from a.ditto@10 -o b.ditto --disk plain.img --disk copies/top.qcow2
    said 'copies/base.qcow2 has another size or time than what was recorded with'
    ditto 0 disk --quiet a.ditto --number 2 -o out.raw --disk plain.img --disk copies/top.qcow2
    said 'copies/base.qcow2 has another size or time'
    cmp out.raw plain.img
    ditto 0 run --quiet --from b.ditto@10 # where they are now is as they are now
    said ''

    # In their own places. What the guest sees of them is the same: nothing else would tell.
    cp -p base.qcow2 base.before
    qemu-io -f qcow2 -c 'write -P 7 500000 512' -c 'write -P 8 500000 512' base.qcow2 >/dev/null
    local options=('' '--disk plain.img --disk top.qcow2') option
    for option in "${options[@]}"; do
        # shellcheck disable=SC2086 # words
        ditto 1 run --quiet --from a.ditto@10 $option
        said '/base.qcow2, of which /.*/top.qcow2 is made, has changed since it was recorded with; give'
        # shellcheck disable=SC2086
        ditto 1 disk a.ditto --number 1 -o x.raw $option
        said '/base.qcow2, of which /.*/top.qcow2 is made, has changed since'
    done
    ditto 0 snapshot --at 10 a.ditto
    said 'without devices and disk, .*base.qcow2, of which .* is made, has changed since'
    ditto 1 snapshot --at 12 --disk plain.img --disk top.qcow2 a.ditto
    said 'base.qcow2, of which .* has changed since'
    # Booting, nobody knows what it was; but that it is newer than what lies over it.
    ditto 0 run --quiet "${count[@]}" top.qcow2
    said '/base.qcow2 was changed after /.*/middle.qcow2, whose backing file it is: the two may not fit'
    mv base.qcow2 away
    ditto 1 run --quiet --from a.ditto@10
    said 'cannot use disk image .*top.qcow2 (qcow2): .*base.qcow2.*No such file'
    mv base.before base.qcow2 # with its own time
    ditto 0 run --quiet --from a.ditto@10
    said ''

    # The image itself: also where it is written through, and so is no more what it was at the beginning.
    touch plain.img
    ditto 1 run --quiet --from a.ditto@10
    said '/plain.img has changed since it was recorded with; give an unchanged copy with --disk'
    ditto 0 run --quiet --from a.ditto@10 --disk plain.img --disk top.qcow2
    said '/plain.img has another size or time'
    ditto 0 info --json a.ditto
    jq -e '[.disks[1].files[].path | sub(".*/"; "")] == ["top.qcow2", "middle.qcow2", "base.qcow2"]' <<<"$output"
}

@test "what cannot be is told in a line" {
    unset DITTO_SERVER # images are looked into before a host is started
    qemu-img create -q -f qcow2 base.qcow2 64M
    qemu-img create -q -f qcow2 -b base.qcow2 -F qcow2 top.qcow2
    mv base.qcow2 gone.qcow2
    ditto 1 run top.qcow2
    one_error "cannot use disk image top.qcow2 (qcow2): .*base.qcow2.*No such file"
    head -c 60 gone.qcow2 >cut.qcow2
    ditto 1 run cut.qcow2
    one_error 'cannot use disk image cut.qcow2 (qcow2)'
    ditto 1 run gone.qcow2
    one_error 'gone.qcow2 has neither a partition table nor'
    qemu-nbd --socket="$PWD/socket" --format=qcow2 gone.qcow2 3>&- &
    local other=$!
    until [ -S socket ]; do sleep 0.1; done
    cp "$IMAGE" own.img
    ditto 1 run --write-through --disk gone.qcow2 own.img
    kill $other
    one_error 'cannot use disk image gone.qcow2 (qcow2): .*lock'
    mkdir only
    ln -s /bin/true only/true
    run -1 env PATH="$PWD/only" "$DITTO" run gone.qcow2
    grep -q "which needs qemu-nbd; run 'apt-get install qemu-utils'" <<<"$output"
}
