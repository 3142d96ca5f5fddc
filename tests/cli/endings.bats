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
