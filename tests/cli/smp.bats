# Machines with several CPUs, recorded with their turns on one thread.
load helper

@test "Debian's kernel with 2 CPUs: recorded, identical in the replay (make check-all: two threads for gdb)" {
    ditto_to 300 smp.out smp.err run --cpus 2 -o smp.ditto --append ditto.script=parallel "$IMAGE"
    cat smp.out smp.err
    grep -q '^parallel: 2 CPUs, 1 rounds' smp.out
    grep -q '^parallel: 1 rounds done, 0 failures' smp.out
    seconds=300 ditto 0 verify smp.ditto
    [[ $output == *identical* ]]
    ditto 0 info smp.ditto
    [[ $output == *'2 CPU ditto-v1'* ]]
    ditto 1 order smp.ditto
    one_error 'its CPUs took turns'
    # The kernel has found the second one and uses it.
    [ "$("$DITTO" dump smp.ditto | grep -c 'vCPU 1 runs')" -gt 10 ]

    # For gdb each of them is a thread, as of the small guest below; in Linux that takes more than a minute.
    [ -n "${LONG:-}" ] || return 0
    command -v gdb >/dev/null || skip "gdb is not installed"
    "$DITTO" symbols smp.ditto >guest.sym
    bounded 280 "$DITTO" replay --gdb=unix:"$PWD/socket" smp.ditto 2>serve.err </dev/null 3>&- &
    await_gdb_server
    in_gdb 250 guest.sym 'break do_one_initcall' continue 'info threads' 'thread 2' 'thread 1' \
        continue reverse-continue 'info threads' kill
    [ "$status" = 0 ]
    [ "$(grep -c '^Thread [12] hit Breakpoint 1, .* in do_one_initcall ()' <<<"$output")" = 3 ]
    [ "$(grep -c '^[* ] [12]  *Thread [12] (CPU [01])' <<<"$output")" = 4 ]
    [[ $output == *'[Switching to thread 2 (Thread 2)]'* ]]
    [[ $output != *diverged* ]]
}

# A recorder's first snapshot is there.
has_snapshot() {
    [ -s "$1" ] && "$DITTO" info "$1" 2>/dev/null | grep -q "^ *1  .* no$"
}

@test "two CPUs that wait for each other for ever: stopped by the user, and replayed" {
    "$DITTO" run --cpus 2 -o dead.ditto --checkpoint-every 1 --memory 32M --append 'how=3' \
        --kernel "$BUILD/guests/smp-end.elf" </dev/null >dead.out 2>dead.err 3>&- &
    pid=$!
    wait_until 60 has_snapshot dead.ditto
    stopped_by_user dead.err
    ditto 0 verify dead.ditto
    [[ $output == *identical*'stopped by the user' ]]
    ditto 0 verify dead.ditto@1 # the recorder's first snapshot
    [[ $output == *identical*'stopped by the user' ]]
    ditto 0 dump dead.ditto
    [[ $output == *'vCPU 1 runs'* ]]
}

@test "a machine has 1 to 8 CPUs, which take turns" {
    ditto 2 run --cpus 9 --kernel "$HELLO_ELF"
    one_error 'takes 1 to 8'
    ditto 2 run --smp many --kernel "$HELLO_ELF"
    one_error 'takes uni, crew or loose'
    ditto 2 run --chaos 0 --kernel "$HELLO_ELF"
    one_error 'from 1 on'
}

@test "a snapshot of several CPUs is where a replay begins" {
    ditto 0 run --cpus 2 -o many.ditto --memory 32M --kernel "$BUILD/guests/smp-count.elf"
    # Behind the second one's first accesses, before any output.
    ditto 0 snapshot --name start --at 7 many.ditto
    ditto 0 replay many.ditto@start
    [[ $output == *'counted 400000'* ]]
    ditto 0 verify many.ditto@start
    [[ $output == *identical*'powered off' ]]
}

@test "gdb: breakpoints in a kernel in the lower half, and a change to the CPU that was chosen" {
    command -v gdb >/dev/null || skip "gdb is not installed"
    ditto 0 run --cpus 2 -o low.ditto --memory 32M --append 'passes=1000' \
        --kernel "$BUILD/guests/smp-count.elf"
    bounded 120 "$DITTO" replay --gdb=unix:"$PWD/socket" --diverge low.ditto 2>serve.err </dev/null 3>&- &
    await_gdb_server
    # shellcheck disable=SC2016 # what has a $ in it is for gdb
    in_gdb 100 "$BUILD/guests/smp-count.elf" 'break *count' continue continue 'thread 1' \
        'set var $r15 = 0x5eed' 'info registers r15' 'thread 2' 'info registers r15' \
        reverse-continue 'thread 1' 'info registers r15' kill
    [ "$status" = 0 ]
    [ "$(grep -c '^Thread [12] hit Breakpoint 1, .* in count ()' <<<"$output")" -ge 2 ]
    [ "$(grep -c '^r15 .*0x5eed' <<<"$output")" = 1 ]
}

@test "a machine with several CPUs does not go live" {
    ditto 0 run --cpus 2 -o two.ditto --memory 32M --append 'passes=1000' \
        --kernel "$BUILD/guests/smp-count.elf"
    ditto 1 run --from two.ditto@5 -o on.ditto
    one_error 'has several CPUs'
    nothing_written two.ditto
    ditto 2 run --from two.ditto --cpus 2
    one_error '--cpus makes no sense with --from'
}

# seconds_of FILE: whole seconds that the recording took, of the summary.
seconds_of() {
    json_field seconds "$1" | cut -d. -f1
}

@test "--slow: the machine's clock runs slower, with CPUs in turns and at the same time, and is replayed" {
    local smp
    for smp in uni crew; do
        # 20 interrupts, 10 ms apart: 2 s of the host's time.
        ditto 0 run --json --slow 10 --chaos 18446744073709551615 --smp $smp --cpus 2 -o $smp.ditto \
            --memory 32M --append ticks=20 --kernel "$BUILD/guests/count.elf"
        [[ $output == *'ticks 20'* ]]
        echo "$stderr" >$smp.err
        [ "$(seconds_of $smp.err)" -ge 2 ]
        ditto 0 verify $smp.ditto
        [[ $output == *identical*'powered off' ]]
        ditto 0 info $smp.ditto
        [[ $output == *'clock landmark, --slow 10, --chaos 18446744073709551615'$'\n'* ]]
    done
    for value in 0 1001 fast -1; do
        ditto 2 run --slow $value --kernel "$HELLO_ELF"
        one_error '--slow takes 1 to 1000'
    done
    nothing_written uni.ditto crew.ditto uni.err crew.err
}
