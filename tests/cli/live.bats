# Machines that go on, live, from a place of their recording.
# shellcheck disable=SC2016,SC2086 # what has a $ in it is for the guest; arguments are words
load helper

syncs() {
    "$DITTO" dump "$1" | grep -c '^ *[0-9]*  sync'
}

# goes_on PLACE NEW LINE [OPTION...]: goes live from there, recorded; the machine puts out the line and powers
# off; its own recording is good.
goes_on() {
    echo "from $1"
    ditto_to 300 live.out live.err run --json --from "$1" -o "$2" "${@:4}" || {
        cat live.err
        return 1
    }
    [ "$(json_field end live.err)" = 'powered off' ]
    tr -d '\r' <live.out | grep -qx "$3" || {
        tail live.out
        return 1
    }
    seconds=300 ditto 0 verify "$2"
    [[ $output == *'identical'*'powered off' ]]
}

@test "a timer goes on ticking, again and again" {
    ditto 0 run --quiet -o first.ditto --memory 32M --kernel "$BUILD/guests/count-user.elf" --append ticks=40
    # Ticks are two sync points each; the output at the end are more.
    place=$((2 + RANDOM % 70))
    goes_on first.ditto@$place second.ditto 'ticks 40'
    ditto 0 info second.ditto
    [[ $output == *"went live     from sync point $place of first.ditto"* ]]
    goes_on second.ditto@$((RANDOM % 20)) third.ditto 'ticks 40'
}

@test "a machine that went live goes on from its very beginning: its hook, its HLT" {
    ditto 0 run --quiet -o first.ditto --memory 32M --kernel "$BUILD/guests/count-user.elf" --append ticks=20
    goes_on first.ditto@20 second.ditto 'ticks 20'
    goes_on second.ditto@0 third.ditto 'ticks 20'
    ditto 0 run --quiet -o halt.ditto --memory 32M --kernel "$BUILD/guests/halt.elf"
    place=$("$DITTO" dump halt.ditto | awk '$2 == "sync" && $3 == "hlt" { print $1; exit }')
    ditto 0 run --quiet -o still.ditto --from halt.ditto@"$place"
    ditto 0 run --json -o last.ditto --from still.ditto@0
    grep -q '"end": "halted' <<<"$stderr"
    ditto 0 verify last.ditto
}

@test "small machines go on from many places" {
    while read -r guest arguments line; do
        ditto 0 run --quiet -o "$guest".ditto --memory 32M --kernel "$BUILD/guests/$guest.elf" \
            --append "$arguments"
        ditto 0 snapshot --quiet --every 12 "$guest".ditto
        bounded_tool 300 "$BUILD/tools/go_live" "$guest".ditto \
            "$line" 12 $RANDOM >places 2>&1 || {
            cat places
            false
        }
        cat places
        grep -q '^# [1-9][0-9]* began at a snapshot' places
    done <<'END'
count-user ticks=10 ticks 10
rdtsc-user x sum
halt x about to halt
END
}

@test "a machine goes on from a snapshot, by its name" {
    ditto 0 run --quiet -o first.ditto --memory 32M --kernel "$BUILD/guests/count-user.elf" --append ticks=20
    ditto 0 snapshot --quiet --at 20 --name half first.ditto
    ditto 0 snapshot --quiet --at 30 first.ditto
    goes_on first.ditto@half second.ditto 'ticks 20'
    ditto 0 info second.ditto
    [[ $output == *"went live     from sync point 20 of first.ditto"* ]]
    # A name is meant before a number is, as where it is replayed.
    goes_on first.ditto@1 third.ditto 'ticks 20'
    ditto 0 info third.ditto
    [[ $output == *"went live     from sync point 30 of first.ditto"* ]]
    ditto 1 run --from first.ditto@whole
    one_error "has no snapshot 'whole'; it has: half, 1"
}

@test "a machine goes on from anywhere: its files, its processes" {
    long
    ditto_to 300 soak.out soak.err run --quiet -o soak.ditto --checkpoint-every 2 \
        --append 'ditto.script=soak ditto.n=1' "$IMAGE"
    ditto 0 info soak.ditto
    mapfile -t names < <(snapshots_of soak.ditto)
    [ ${#names[@]} -ge 2 ]
    goes_on soak.ditto@"${names[RANDOM % ${#names[@]}]}" on.ditto 'soak: 1 rounds done, 0 failures'
    # The way there was short: nothing of the boot was seen.
    ! grep -q 'Linux version' live.out
    last=$(syncs on.ditto)
    goes_on on.ditto@$((last * (20 + RANDOM % 60) / 100)) further.ditto 'soak: 1 rounds done, 0 failures'
}

# at_the_keys OUT ARGUMENT...: dittovm run with what is written to descriptor 4 as its console input, as
# $pid.
at_the_keys() {
    local shown=$1
    shift
    rm -f keys
    mkfifo keys
    "$DITTO" run --quiet "$@" <keys >"$shown" 2>"$shown.err" 3>&- &
    pid=$!
    exec 4>keys
}

@test "one that was stopped goes on where it was: disk, console, time; its image is needed" {
    booted
    cp --sparse=always "$IMAGE" disk.img
    sha256sum disk.img >before
    at_the_keys first.out --from "$booted" -o first.ditto --disk disk.img
    echo 'head -c 300000 /dev/urandom >/var/tmp/f; sync; md5sum /var/tmp/f >/sum; echo at $(date +%s) x=$((x=40))' >&4
    until_said 120 first.out '^at [0-9]'
    kill -TERM $pid
    wait $pid
    exec 4>&-
    at=$(sed -n 's/^at \([0-9]*\) .*/\1/p' first.out)

    mv disk.img moved.img
    ditto 1 run --from first.ditto
    one_error "cannot open .*disk.img.*--disk"
    cp --sparse=always moved.img changed.img
    printf x | dd of=changed.img bs=1 seek=1000 conv=notrunc status=none
    ditto 1 run --from first.ditto changed.img
    one_error "changed.img is not the disk image that was recorded with"
    rm changed.img

    at_the_keys second.out --from first.ditto --disk moved.img -o second.ditto
    until_said 300 second.out '^at [0-9]'
    echo 'echo 3 >/proc/sys/vm/drop_caches; md5sum -c /sum; echo then $(date +%s) $((x + 2)); exit' >&4
    exec 4>&-
    wait $pid
    tail -n 6 second.out
    grep -a 'f: OK' second.out
    then=$(sed -n 's/^then \([0-9]*\) 42.*/\1/p' second.out)
    [ "$then" -ge "$at" ] && [ "$then" -lt $((at + 200 * PATIENCE)) ]
    ditto 0 verify second.ditto
    [[ $output == *identical*'powered off' ]]
    ditto 1 run --from second.ditto
    one_error 'nothing to go on with at the end of second.ditto'
    sed -i s/disk.img/moved.img/ before
    sha256sum -c --quiet before
}

@test "snapshots hold devices and disk where the image is there" {
    head -c 1000000 /dev/urandom >disk.img
    ditto 0 run --quiet -o a.ditto --memory 32M --kernel "$BUILD/guests/count-user.elf" --append ticks=20 disk.img
    ditto 0 snapshot --at 20 --name with a.ditto
    [ "$(wc -l <<<"$output")" = 1 ]
    mv disk.img moved.img
    ditto 0 snapshot --at 30 --name without a.ditto
    [[ $stderr == *'without devices and disk, so that run --from replays to them from before: cannot open'* ]]
    ditto 1 snapshot --at 40 --disk nosuch.img a.ditto
    one_error 'cannot open nosuch.img'
    ditto 0 snapshot --at 40 --disk moved.img a.ditto
    [ "$(wc -l <<<"$output")" = 1 ]
    sed s/a/b/ moved.img >disk.img
    ditto 0 snapshot --at 50 --name other a.ditto
    # By its time, or where a host that runs on has that of before, by its contents.
    grep -qE 'without devices and disk.*(not the disk image that was|has changed since it was) recorded with' <<<"$stderr"
    ditto 0 info a.ditto
    grep -q '^    with .*yes$' <<<"$output"
    grep -q '^    without .*no$' <<<"$output"
    grep -q '^    1 .*yes$' <<<"$output"
    grep -q '^    other .*no$' <<<"$output"
    # One without them is come to from the one before.
    goes_on a.ditto@without b.ditto 'ticks 20' --disk moved.img
}

@test "what makes no sense" {
    for arguments in '--append x' '--kernel k' '--initrd i' '--memory 64M' '--write-through'; do
        ditto 2 run --from "$SHARED/small.ditto" $arguments
        one_error "${arguments%% *} makes no sense with --from"
    done
    ditto 1 run --from "$SHARED/small.ditto@x"
    one_error 'small.ditto has no snapshots'
    ditto 2 run --from ''
    one_error '--from takes a recording'
    ditto 1 run --from "$SHARED/small.ditto@99999999"
    one_error 'there is no 99999999'
    ditto 1 run --from "$SHARED/small.ditto"
    one_error 'nothing to go on with'
    ditto 1 run --from "$SHARED/small.ditto@$(syncs "$SHARED/small.ditto")"
    one_error 'nothing to go on with'
    ditto 1 run --from "$SHARED/small.ditto@3" "$IMAGE"
    one_error 'has no disk'
    ditto 2 run --check-disk "$IMAGE"
    one_error '--check-disk goes with --from'
    ditto 1 run --from nosuch.ditto@3
    one_error 'nosuch.ditto'
    small_recording same.ditto
    ditto 2 run --from same.ditto@3 -f -o same.ditto
    one_error 'cannot be overwritten'
    cmp same.ditto "$SHARED/small.ditto"
    nothing_written ./same.ditto same.ditto
}

@test "what was left to chance before is left to chance behind" {
    ditto 0 run --quiet -o first.ditto --memory 32M --kernel "$BUILD/guests/late-code.elf"
    place=$(($(syncs first.ditto) - 2))
    goes_on first.ditto@$place second.ditto 'sum [0-9]*'
    ditto 0 info second.ditto
    [[ $output == *'unsure '*'RDTSC in kernel code at 0xffffffffc0000000 was found only after'* ]]
    rm first.ditto second.ditto
}

# Its RDTSC is replaced behind the sync point where it has been put together.
@test "a machine goes on from where a module is loaded" {
    [ -n "${LONG:-}" ] || skip "takes half a minute: make check-all"
    ditto_to 300 run.out run.err run --quiet -o first.ditto --append ditto.script=hello "$BUILD/guest/modules.img"
    "$DITTO" dump first.ditto >dump
    place=$(grep -A 1 ' sync *out 0xe4' dump | awk '/event *memory written/ { print $1; exit }')
    goes_on first.ditto@"$place" second.ditto 'ditto: hello ended with status 0'
    [[ $(cat live.err) != *'may diverge'* ]]
    rm first.ditto second.ditto dump
}
