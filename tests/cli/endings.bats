# Recorders that do not reach the end of their machine.
load helper

KILLS=${KILLS:-${LONG:+10}}
KILLS=${KILLS:-3}

# record ARGUMENT...: starts a recording in the background, as $pid; its keyboard is $keys, or nobody's.
record() {
    # Here, not by the redirections: what the one before wrote could be read before they are made.
    rm -f cut.ditto cut.out cut.err
    "$DITTO" run -o cut.ditto --quiet "$@" <"${keys:-/dev/null}" >cut.out 2>cut.err 3>&- &
    pid=$!
}

# A small guest that is interrupted all the time.
count=(--memory 32M --append ticks=100000 --kernel "$BUILD/guests/count.elf")

has_recorded() {
    [ -s cut.ditto ] && "$DITTO" info cut.ditto >/dev/null 2>&1
}

@test "a recorder killed at $KILLS random moments leaves what replays" {
    RANDOM=$$
    booted
    for round in $(seq "$KILLS"); do
        what=("${count[@]}")
        [ $((round % 5)) != 1 ] || what=(--from "$booted")
        # Only with more KILLS: before anything of it can be replayed a kernel that boots is looked into, and packed.
        [ $((round % 10)) != 6 ] || what=(--append ditto.script=boot "$IMAGE")
        record "${what[@]}"
        wait_until 120 has_recorded
        sleep $((RANDOM % 3)).$((RANDOM % 10))
        kill -KILL $pid
        wait $pid || true
        # It may have ended by itself just before.
        ditto 0 info --json cut.ditto
        [[ $output == *'"complete": true'* ]] && complete=1 || complete=0
        ditto 0 info cut.ditto
        [ $complete = 1 ] || [[ $output == *'the recorder was killed'* ]]
        echo "round $round: $(stat -c %s cut.ditto) bytes, complete: $complete"
        ditto 0 verify cut.ditto
        [ $complete = 1 ] || [[ $output == *'identical up to where the recorder was killed'* ]]
    done
}

@test "one killed with a network and two disks at work: it replays, goes live, and its disks are there" {
    local web rounds written kills=1
    RANDOM=$$
    [ -z "${LONG:-}" ] || kills=3
    head -c 1000000 /dev/urandom >b.img
    head -c 300000 /dev/urandom >blob
    web=$(free_port)
    python3 -m http.server --bind 127.0.0.1 "$web" >http.log 2>&1 3>&- &
    local server=$!
    for _ in $(seq $kills); do
        rm -f keys
        mkfifo keys
        exec 4<>keys
        keys=keys record --net user --net none --checkpoint-every 3 --disk b.img "$IMAGE"
        wait_until 120 grep -aq '/root # ' cut.out
        printf '%s\n' 'for i in 1 2 3 4 5 6 7 8; do head -c 200000 /dev/urandom >/dev/vdb; echo $i >/n; sync;' \
            "timeout 100 wget -q -O - http://10.0.2.2:$web/blob | md5sum | sed \"s/^/\$i: /\"; done" >&4
        wait_until 60 grep -aq '^2: ' cut.out
        sleep $((RANDOM % 3)).$((RANDOM % 10))
        kill -KILL $pid
        wait $pid || true
        exec 4>&-
        grep -aq "^2: $(md5sum <blob | cut -c-32)" cut.out
        ditto 0 info cut.ditto
        [[ $output == *'the recorder was killed'* && $output == *'NIC 1 '* ]]
        echo "$(stat -c %s cut.ditto) bytes, snapshots: $(snapshots_of cut.ditto | tr '\n' ' ')"
        ditto 0 verify cut.ditto
        [[ $output == *'identical up to where the recorder was killed'* ]]
        # What was seen may be a little more than what is whole of it.
        rounds=$(tr -d '\r' <cut.out | sed -n 's/^\([0-9]*\): .*/\1/p' | tail -n 1)
        ditto 0 disk cut.ditto --number 1 -o cut.raw --force
        written=$(file_on cut.raw /n)
        echo "rounds: $rounds; on the disk: $written"
        [ "$written" -ge 1 ] && [ "$written" -le $((rounds + 1)) ]
        ditto 0 disk cut.ditto --number 2 -o cut2.raw --force
        ! cmp -s -n 200000 cut2.raw b.img
        cmp -n 700000 -i 204800 cut2.raw b.img # the rest is as it was
        # Its connections are gone, and who waits for an answer gives up; new ones can be made.
        echo "echo 3 >/proc/sys/vm/drop_caches; wget -q -O - http://10.0.2.2:$web/blob | md5sum; exit" >typed
        DITTO_IN=$PWD/typed ditto 0 run --quiet --from cut.ditto --net user -o on.ditto
        tr -d '\r' <<<"$output" | grep -q "^$(md5sum <blob | cut -c-32)"
        ditto 0 verify on.ditto
        [[ $output == *identical*'powered off' ]]
    done
    kill $server
}

@test "a recorder killed while its guest sleeps or hangs has all that was before" {
    for what in 'how=1' 'how=2' 'how=1 --smp crew --cpus 2' 'how=2 --smp crew --cpus 2'; do
        # shellcheck disable=SC2086 # options
        record --memory 32M --kernel "$BUILD/guests/standstill.elf" --append $what
        wait_until 60 grep -q 'any more' cut.out
        sleep 2
        kill -KILL $pid
        wait $pid || true
        ditto 0 replay cut.ditto
        [[ $output == *'nothing comes any more'* ]]
        ditto 0 verify cut.ditto
        [[ $output == *'identical up to where the recorder was killed'* ]]
    done
}

@test "SIGTERM ends a run with a complete recording" {
    booted
    echo 'while :; do :; done' >busy
    keys=busy record --from "$booted"
    wait_until 60 has_recorded
    sleep 2
    stopped_by_user cut.err
    ditto 0 info cut.ditto
    [[ $output == *'stopped by the user'* ]]
    ditto 0 verify cut.ditto
    [[ $output == *identical*'stopped by the user' ]]
}

@test "a guest that KVM does not come out of is ended by its user" {
    for kind in cr3-nowhere gdt-nowhere; do
        record --memory 32M --append "$kind=1 timer=1" --kernel "$BUILD/guests/hostile.elf"
        wait_until 60 grep -q $kind cut.out
        sleep 1
        stopped_by_user cut.err
        grep -q 'came to no place where a replay finds it again' cut.err
        ditto 0 verify cut.ditto
        [[ $output == *identical*'stopped by the user; what it did behind its last sync point was not compared' ]]
    done
}

@test "Ctrl-A x ends a run with a complete recording" {
    # At a shell; script(1) gives dittovm a terminal.
    booted
    mkfifo keys
    bounded 300 script -qfec "$DITTO run -o cut.ditto --from $booted" typescript <keys >/dev/null 3>&- &
    pid=$!
    exec 4>keys
    printf 'echo typed $((6 * 7))\n' >&4
    wait_until 120 grep -q "typed 42" typescript
    printf '\001x' >&4
    exec 4>&-
    status=0
    wait $pid || status=$?
    tail -n 5 typescript
    [ $status = 0 ]
    ditto 0 info cut.ditto
    [[ $output == *'stopped by the user'* ]]
    ditto 0 verify cut.ditto
    [[ $output == *identical* ]]
}

@test "a full disk ends a recording with one error; what was written replays" {
    [ "$(id -u)" = 0 ] || skip "only root can mount a small file system"
    mkdir small
    for kind in small ${LONG:+linux}; do
        what=("${count[@]}") size=32k
        rm -f cut.ditto
        [ $kind = small ] || what=(--append 'ditto.script=soak ditto.n=20' "$IMAGE") size=16m
        mount -t tmpfs -o size=$size tmpfs small || skip "file systems cannot be mounted here"
        run --separate-stderr bounded 120 "$DITTO" run -o small/cut.ditto --quiet "${what[@]}" </dev/null
        cp small/cut.ditto . || true
        umount small
        echo "$output" | tail -n 3
        echo "$stderr"
        [ "$status" = 1 ]
        one_error 'No space left'
        ditto 0 info cut.ditto
        ditto 0 verify cut.ditto
    done
}
