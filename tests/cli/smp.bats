# Machines with several CPUs, recorded with their turns on one thread.
load helper

@test "Debian's kernel with 2 CPUs: recorded, and identical in the replay" {
    bounded 300 "$DITTO" run --cpus 2 -o smp.ditto --append 'ditto.script=forks ditto.n=20' "$IMAGE" \
        >smp.out 2>smp.err </dev/null
    cat smp.out smp.err
    grep -q '^forks: 20 children, sum' smp.out
    grep -q '^ditto: forks ended with status 0' smp.out
    bounded 300 "$DITTO" verify smp.ditto >verified 2>&1 </dev/null
    cat verified
    grep -q identical verified
    ditto 0 info smp.ditto
    [[ $output == *'2 CPU ditto-v1'* ]]
    # The kernel has found the second one and uses it.
    [ "$("$DITTO" dump smp.ditto | grep -c 'vCPU 1 runs')" -gt 10 ]
}

@test "two CPUs that wait for each other for ever: stopped by the user, and replayed" {
    "$DITTO" run --cpus 2 -o dead.ditto --checkpoint-every 1 --memory 32M --append 'how=3' \
        --kernel "$BUILD/guests/smp-end.elf" </dev/null >dead.out 2>dead.err 3>&- &
    pid=$!
    sleep 10
    kill -TERM $pid
    status=0
    wait $pid || status=$?
    cat dead.err
    [ $status = 0 ]
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
    ditto 2 run --smp crew --kernel "$HELLO_ELF"
    one_error 'takes uni'
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

@test "a machine with several CPUs does not go live" {
    ditto 0 run --cpus 2 -o two.ditto --memory 32M --append 'passes=1000' \
        --kernel "$BUILD/guests/smp-count.elf"
    ditto 1 run --from two.ditto@5 -o on.ditto
    one_error 'has several CPUs'
    nothing_written two.ditto
    ditto 2 run --from two.ditto --cpus 2
    one_error '--cpus makes no sense with --from'
}
