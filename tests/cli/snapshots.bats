# Snapshots in a recording: taking them, and beginning a replay there.
load helper

# is_tail FILE OF: a file is the end of another one.
is_tail() {
    tail -c "$(stat -c %s "$1")" "$2" | cmp - "$1"
}

# dump_last RECORDING: its last sync point.
dump_last() {
    "$DITTO" dump "$1" | awk '$2 == "sync" { last = $1 } END { print last }'
}

# from_snapshot REC@NAME DIGEST: a replay from there is identical; what it shows is in replay.out.
from_snapshot() {
    ditto_to 120 replay.out replay.err replay --json "$1" || {
        cat replay.err
        return 1
    }
    [ "$(json_field result replay.err)" = identical ]
    [ "$(json_field digest replay.err)" = "$2" ]
}

@test "a replay begins at a snapshot, shows the rest of the output and ends as ever" {
    ditto_to 120 run.out run.err run --json --memory 32M -o c.ditto \
        --kernel "$BUILD/guests/count-user.elf" --append ticks=10
    digest=$(json_field digest run.err)
    last=$(json_field syncs run.err)
    size=$(stat -c %s c.ditto)
    cp c.ditto before.ditto
    ditto 0 snapshot --at $((last / 2)) c.ditto
    [[ $output == *"snapshot 1 at sync point $((last / 2)): "*'replay c.ditto@1' ]]
    cmp -n "$size" c.ditto before.ditto
    ditto 0 snapshot --name the-end c.ditto
    [[ $output == *"snapshot the-end at sync point $last: "* ]]
    # One file is all that is needed, whatever it is called.
    mkdir elsewhere
    cp c.ditto 'elsewhere/moved@1'
    rm c.ditto
    cd elsewhere
    from_snapshot 'moved@1@1' "$digest"
    [ -s replay.out ]
    is_tail replay.out ../run.out
    [ "$(json_field from replay.err)" = $((last / 2)) ]
    ditto 0 verify --json 'moved@1@the-end'
    [[ $output == *"\"digest\": \"$digest\""*'"result": "identical"'* ]]
    ditto 0 verify 'moved@1'
    [[ $output == *"identical, $last sync points"* ]]
    ditto 2 replay --to 5 'moved@1@1'
    one_error "before the snapshot '1'"
    ditto 0 info 'moved@1'
    [[ $output == *'snapshots '*'    1 '*'    the-end '* ]]
    [[ $output == *'ended         powered off'* ]]
    ditto 0 dump --from $((last / 2)) --to $((last / 2)) 'moved@1'
    [[ $output == *"$((last / 2))  snapshot 1"* ]]
}

@test "snapshots that there are not, or cannot be" {
    small_recording c.ditto
    ditto 1 replay c.ditto@1
    one_error 'c.ditto has no snapshots; dittovm snapshot makes one'
    ditto 0 snapshot --quiet --at 20 --name first c.ditto
    [ -z "$output" ]
    ditto 0 snapshot --quiet --at 30 c.ditto
    cp c.ditto before
    for command in replay verify 'replay --gdb'; do
        # shellcheck disable=SC2086 # words
        ditto 1 $command c.ditto@2
        one_error "c.ditto has no snapshot '2'; it has: first, 1"
    done
    ditto 1 snapshot --name first c.ditto
    one_error "has a snapshot 'first' already"
    ditto 1 snapshot --at 100000 c.ditto
    one_error 'sync points; 100000 is behind its end'
    ditto 2 snapshot --at 0 c.ditto
    ditto 2 snapshot --name 'a@b' c.ditto
    ditto 2 snapshot c.ditto@1
    one_error 'without @1'
    cmp c.ditto before
    size=$(stat -c %s c.ditto)
    head -c $((size / 2)) "$SHARED/small.ditto" >killed.ditto
    ditto 65 snapshot killed.ditto
    head -c $(($(stat -c %s "$SHARED/small.ditto") - 1)) "$SHARED/small.ditto" >killed.ditto
    ditto 1 snapshot killed.ditto
    one_error 'its recorder was killed'
}

@test "an addition that is cut anywhere leaves what there was" {
    small_recording c.ditto
    whole=$(stat -c %s c.ditto)
    ditto 0 snapshot --quiet --at 20 c.ditto
    size=$(stat -c %s c.ditto)
    RANDOM=7
    for _ in $(seq 60); do
        head -c $((whole + RANDOM % (size - whole))) c.ditto >cut.ditto
        ditto 0 info --json cut.ditto
        [[ $output == *'"complete": true'*'"snapshots": []'* ]]
    done
    ditto 0 snapshot --quiet --at 20 cut.ditto
    ditto 0 verify cut.ditto
    [[ $output == *identical*'powered off' ]]
}

@test "snapshots of Linux share their pages" {
    need_recording
    cp "$HELLO/recorded/hello.ditto" h.ditto
    digest=$(json_field digest "$HELLO/run.err")
    at=$(($(json_field syncs "$HELLO/run.err") * 3 / 4))
    size=$(stat -c %s h.ditto)
    ditto 0 snapshot --quiet --at $at h.ditto
    first=$(($(stat -c %s h.ditto) - size))
    ditto 0 snapshot --quiet --at $((at + 500)) --name later h.ditto
    second=$(($(stat -c %s h.ditto) - size - first))
    echo "$first bytes, then $second"
    [ $second -lt $((first / 4)) ]
    from_snapshot h.ditto@later "$digest"
    [ -s replay.out ]
    is_tail replay.out "$HELLO/run.out"
    # Nobody looks: it begins at the last snapshot before, without being told to.
    ditto 0 replay --quiet --json --to $((at + 600)) h.ditto
    [[ $output == *"\"from\": $((at + 500)),"*'"syncs": 100}' ]]
}

@test "a recorder takes snapshots on its way: they are what a replay comes to" {
    ditto_to 120 run.out run.err run --json --memory 32M -o c.ditto --checkpoint-every 1 --digest-every 1 \
        --kernel "$BUILD/guests/count-user.elf" --append ticks=200
    count=$(json_field snapshots run.err)
    digest=$(json_field digest run.err)
    [ "$count" -ge 1 ]
    ditto 0 info c.ditto
    [ "$(grep -cE '^    [0-9]+ ' <<<"$output")" = "$count" ]
    from_snapshot c.ditto "$digest"
    from_snapshot "c.ditto@$count" "$digest"
    # Which may be nothing any more.
    is_tail replay.out run.out
    # Memory and registers, at each of them.
    bounded_tool 300 "$BUILD/tools/time_travel" c.ditto 1 0 \
        >travel.out 2>&1 || {
        cat travel.out
        false
    }
    [ "$(grep -c '^ok.* a snapshot, and played to' travel.out)" = "$count" ]
}

@test "a recorder at work says so, and one that is killed leaves its snapshots" {
    unset DITTO_SERVER # the dittovm outside of a host knows who records
    "$DITTO" run --quiet --memory 32M -o c.ditto --checkpoint-every 1 \
        --kernel "$BUILD/guests/count.elf" --append ticks=100000 >/dev/null 2>&1 </dev/null 3>&- &
    running=$!
    for _ in $(seq 600); do
        sleep 0.2
        "$DITTO" info c.ditto 2>&1 | grep -q '^    2 ' && break
    done
    # While it is at work nobody says that it was killed.
    ditto 0 info c.ditto
    [[ $output == *'not yet: it is being recorded'* ]]
    ditto 0 verify c.ditto
    [[ $output == *'identical as far as it is recorded yet'* ]]
    ditto 1 snapshot c.ditto
    one_error 'it is still being recorded'
    kill -KILL $running
    wait $running || true
    ditto 0 info c.ditto
    [[ $output == *'the recorder was killed'*'    1  '* ]]
    ditto 0 verify c.ditto@1
    [[ $output == *'identical up to where the recorder was killed'* ]]
    ditto 2 run --checkpoint-every 1 --kernel "$HELLO_ELF"
    one_error 'goes with --record'
    ditto 2 run -o d.ditto --checkpoint-every 0 --kernel "$HELLO_ELF"
    nothing_written c.ditto
}

@test "snapshots all along a recording, in one replay; tampered with they are refused, or diverge" {
    small_recording c.ditto
    ditto 0 snapshot --every 10 c.ditto
    last=$(($(dump_last c.ditto) / 10))
    [ "$(grep -c 'replay c.ditto@' <<<"$output")" = $last ]
    [[ $output == *'snapshot 1 at sync point 10: '*"snapshot $last at sync point $((last * 10)): "* ]]
    ditto 2 snapshot --every 10 --name x c.ditto
    ditto 1 snapshot --every 10000 c.ditto
    one_error 'sync points; 10000 is behind its end'
    bounded_tool 200 "$BUILD/tools/hostile_snapshots" c.ditto 60 \
        >hostile.out 2>&1 || {
        cat hostile.out
        false
    }
    cat hostile.out
    grep -q '^ok 1' hostile.out
    # A bit that fell over in the file is noticed.
    whole=$(stat -c %s "$SHARED/small.ditto")
    size=$(stat -c %s c.ditto)
    RANDOM=5
    for _ in $(seq 40); do
        at=$((whole + RANDOM % (size - 208 - whole)))
        byte=$(od -An -tu1 -j $at -N 1 c.ditto)
        cp c.ditto flipped.ditto
        printf "\\x$(printf %x $((byte ^ 1 << RANDOM % 8)))" |
            dd of=flipped.ditto bs=1 seek=$at conv=notrunc status=none
        ditto 65 info flipped.ditto
        one_error 'is damaged at byte'
    done
    rm flipped.ditto
}
