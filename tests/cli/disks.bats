#!/usr/bin/env bats
# Several disks of one machine.
load helper

# three_disks: b, c and d, of sizes that end within a cluster, and within a sector.
three_disks() {
    head -c 1000000 /dev/urandom >b.img
    head -c 300032 /dev/urandom >c,1.img
    head -c 500736 /dev/urandom >d.img
}

sum_of() {
    md5sum | cut -c-32
}

@test "several disks: each with its own contents, serial and rights, none is changed; going live, also with them moved" {
    three_disks
    local place
    cat b.img c,1.img d.img | sum_of >before
    ditto 0 run --quiet -o disks.ditto --checkpoint-every 3 --disk b.img --disk c,1.img,serial=third --disk d.img,ro \
        --append ditto.script=disks "$IMAGE"
    tr -d '\r' <<<"$output" >said
    grep -q "before vdb: 1953 sectors, read-only 0, serial ditto-1, sum $(head -c 999936 b.img | sum_of)" said
    grep -q "before vdc: 586 sectors, read-only 0, serial third, sum $(sum_of <c,1.img)" said
    grep -q "before vdd: 978 sectors, read-only 1, serial ditto-3, sum $(sum_of <d.img)" said
    grep -q 'vdd cannot be written' said
    grep -q "after vdd: .* sum $(sum_of <d.img)" said
    ! grep -q "after vdb: .* sum $(head -c 999936 b.img | sum_of)" said
    cat b.img c,1.img d.img | sum_of | cmp - before
    ditto 0 replay disks.ditto
    [[ $stderr == *': identical, '* ]]
    tr -d '\r' <<<"$output" | cmp - said
    ditto 0 info --json disks.ditto
    [ "$(jq -r '.disks | map(.serial) | join(" ")' <<<"$output")" = 'ditto ditto-1 third ditto-3' ]
    place=$(snapshots_of disks.ditto | tail -n 1)
    mkdir moved
    mv b.img c,1.img d.img moved
    ditto 1 run --from "disks.ditto@$place"
    one_error 'cannot open .*/b.img, the disk image that was recorded with'
    ditto 1 run --from "disks.ditto@$place" --disk "$IMAGE"
    one_error 'has 4 disks: say where all are'
    ditto 1 run --from "disks.ditto@$place" --disk "$IMAGE" --disk moved/b.img --disk moved/d.img --disk moved/c,1.img
    one_error 'is not the disk image that was recorded with'
    ditto 0 run --quiet --from "disks.ditto@$place" -o live.ditto --disk "$IMAGE" --disk moved/b.img \
        --disk moved/c,1.img --disk moved/d.img
    tr -d '\r' <<<"$output" | grep -q 'ditto: disks ended with status 0'
    ditto 0 verify live.ditto
    ditto 1 snapshot --at 20000 --name early --disk "$IMAGE" --disk moved/b.img disks.ditto
    one_error 'has 4 disks: say where all are'
    ditto 0 snapshot --at 20000 --name early --disk "$IMAGE" --disk moved/b.img --disk moved/c,1.img \
        --disk moved/d.img disks.ditto
    snapshots_of disks.ditto | grep -qx early
    ditto 0 run --quiet --check-disk --from disks.ditto@20000 -o whole.ditto --disk "$IMAGE" --disk moved/b.img \
        --disk moved/c,1.img --disk moved/d.img
    tr -d '\r' <<<"$output" | grep -q "after vdd: .* sum $(sum_of <moved/d.img)"
    ditto 0 verify whole.ditto
}

@test "a disk that is larger than its image, also where the machine goes on" {
    three_disks
    local place
    ditto 0 run --quiet -o large.ditto --checkpoint-every 3 --disk b.img,size=3M --append ditto.script=disks "$IMAGE"
    tr -d '\r' <<<"$output" |
        grep -q "before vdb: 6144 sectors, .* sum $( (head -c 999936 b.img; head -c 2145792 /dev/zero) | sum_of)"
    place=$(snapshots_of large.ditto | tail -n 1)
    ditto 0 run --quiet --from "large.ditto@$place" -o live.ditto
    ditto 0 verify live.ditto
    ditto 0 run --quiet --check-disk --from large.ditto@20000
    tr -d '\r' <<<"$output" | grep -q "after vdb: 6144 sectors"
}

@test "cloud-init's disk: user-data and keys, beside the recording, and nowhere where there is none" {
    command -v genisoimage isoinfo >/dev/null || skip 'genisoimage is not installed'
    printf '#cloud-config\nhostname: seeded\n' >user
    printf 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOtjs3zlg me\n' >key.pub
    ditto 0 run --quiet -o seeded.ditto --cloud-init user --ssh-key key.pub --append ditto.script=disks "$IMAGE"
    tr -d '\r' <<<"$output" | grep -q "before vdb: .* read-only 1, .* sum $(sum_of <seeded-seed.iso)"
    isoinfo -d -i seeded-seed.iso | grep -q '^Volume id: cidata$'
    isoinfo -R -i seeded-seed.iso -x /user-data | cmp - user
    isoinfo -R -i seeded-seed.iso -x /meta-data | grep -qxF "  - 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOtjs3zlg me'"
    ditto 0 run --quiet --from seeded.ditto@20000 # which finds it there
    tr -d '\r' <<<"$output" | grep -q "after vdb: .* sum $(sum_of <seeded-seed.iso)"
    rm seeded.ditto
    ditto 1 run --quiet -o seeded.ditto --cloud-init user "$IMAGE"
    one_error 'seeded-seed.iso exists; give --force'
    [ -z "${LONG:-}" ] || {
        ditto 0 run --quiet --ssh-key key.pub --append ditto.script=disks "$IMAGE"
        tr -d '\r' <<<"$output" | grep -q 'before vdb: .* read-only 1'
    }
    [ "$(ls)" = "$(printf '%s\n' key.pub seeded-seed.iso user)" ]
    ditto 1 run --ssh-key user "$IMAGE"
    one_error 'user is no public key for ssh'
    ditto 1 run --cloud-init nowhere "$IMAGE"
    one_error 'nowhere'
}

@test "--write-through changes those that may be, and no others" {
    three_disks
    cp "$IMAGE" own.img
    cp d.img d.before
    ditto 0 run --quiet --write-through --disk b.img --disk c,1.img --disk d.img,ro --append ditto.script=disks own.img
    tr -d '\r' <<<"$output" >said
    grep -q "after vdb: .* sum $(head -c 999936 b.img | sum_of)" said
    grep -q "after vdc: .* sum $(sum_of <c,1.img)" said
    cmp d.img d.before
}

@test "what cannot be is told in a line" {
    head -c 4096 /dev/zero >zero.img
    ditto 1 run --disk nowhere.img "$IMAGE"
    one_error 'cannot open nowhere.img'
    ditto 2 run --disk zero.img,serial=a-serial-that-is-too-long "$IMAGE"
    one_error 'a serial has at most 20 characters'
    ditto 2 run --disk a --disk b --disk c --disk d --disk e --disk f --disk g --disk h "$IMAGE"
    one_error 'at most 8 disks'
    ditto 2 run --disk zero.img,size=large "$IMAGE"
    one_error "a disk's size is one like 10G, not 'large'"
    ditto 2 run --write-through --disk zero.img,size=1G "$IMAGE"
    one_error 'cannot make an image larger'
    ditto 2 run --disk zero.img,format=tar "$IMAGE"
    one_error "a disk's format is raw, qcow2"
    ditto 2 snapshot --disk a --disk b --disk c --disk d --disk e --disk f --disk g --disk h --disk i x.ditto
    one_error 'at most 8 disks'
    ditto 2 run "$IMAGE" zero.img
    one_error "one disk image, and more with --disk; 'zero.img' is too much"
}

@test "a slow disk: the guest goes on meanwhile, and a machine goes live between a request and its completion" {
    local place
    head -c 1000000 /dev/urandom >b.img
    SLOW_DISK=$PWD/b.img LD_PRELOAD=$BUILD/tools/slow_disk.so ditto 0 run --host emulated --quiet -o slow.ditto \
        --disk b.img --append ditto.script=disks "$IMAGE"
    tr -d '\r' <<<"$output" >said
    grep -q "before vdb: .* sum $(head -c 999936 b.img | sum_of)" said
    ditto 0 verify slow.ditto
    ditto 0 dump slow.ditto
    # Doorbells of the second disk (2 bytes in its BAR), and where the last of its requests was completed.
    awk '$2 == "sync" { at = $1; if ($3 " " $4 == "mmio write" && $5 ~ /^0xc000[89ab]/) rung = at }
        / disk 1 completes / && at > rung + 5 { print rung, at }' <<<"$output" >late
    [ "$(wc -l <late)" -ge 10 ]
    read -r place _ <<<"$(tail -n 1 late)"
    ditto 0 run --quiet --from "slow.ditto@$((place + 3))" -o live.ditto
    tr -d '\r' <<<"$output" | grep -q 'ditto: disks ended with status 0'
    ditto 0 verify live.ditto
}
