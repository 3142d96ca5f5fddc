# Machines whose CPUs run at the same time (--smp crew).
load helper

# runs REC: the second CPU has been started.
runs() {
    [ -s "$1" ] && "$DITTO" dump "$1" 2>/dev/null | grep -q 'vCPU 1 runs'
}

@test "two CPUs at the same time that want one page for ever: stopped by the user, and replayed" {
    "$DITTO" run --smp crew --cpus 2 -o two.ditto --memory 32M --append 'passes=1000000000' \
        --kernel "$BUILD/guests/smp-count.elf" </dev/null >two.out 2>two.err 3>&- &
    pid=$!
    wait_until 60 runs two.ditto
    sleep 4
    stopped_by_user two.err
    ditto 0 verify two.ditto
    [[ $output == *identical*'stopped by the user' ]]
    ditto 0 verify --parallel two.ditto
    [[ $output == *identical*'stopped by the user' ]]
    ditto 0 info two.ditto
    [[ $output == *'2 CPU ditto-v1 at the same time'* ]]
    # Each of them got the page of the locks more than once.
    ditto 0 dump two.ditto
    [[ $output == *'vCPU 1 runs'*'page fault 0x'*', to write'*'vCPU 0 runs'*'vCPU 1 runs'* ]]
    # And all kinds of logs of that can be replayed.
    ditto 0 order two.ditto
    [[ $output == *'accesses of 2 vCPUs'*'ditto '*'leap '*'levels '* ]]

    # What such a recording is not for yet.
    ditto 1 replay --gdb=unix:"$PWD/socket" two.ditto
    one_error 'recorded with --smp crew'
    ditto 1 snapshot --name start --at 7 two.ditto
    one_error 'recorded with --smp crew'
    ditto 1 run --from two.ditto -o on.ditto
    one_error 'has several CPUs'
}

# The run before the end has no sync point behind it: its CPU is at a page fault that nobody serves any more.
@test "CPUs at the same time: stopped by the user at a page fault, and replayed" {
    "$DITTO" run --smp crew --cpus 2 -o touch.ditto --memory 1G --append 'mib=1024' \
        --kernel "$BUILD/guests/touch.elf" </dev/null >touch.out 2>touch.err 3>&- &
    pid=$!
    wait_until 60 test -s touch.out
    sleep 2
    stopped_by_user touch.err
    for how in '' --parallel; do
        ditto 0 verify $how touch.ditto
        [[ $output == *identical*'stopped by the user' ]]
    done
}

@test "CPUs at the same time: a recorder that is killed leaves what replays" {
    "$DITTO" run --quiet --smp crew --cpus 2 -o cut.ditto --memory 32M --append 'passes=1000000000' \
        --kernel "$BUILD/guests/smp-count.elf" </dev/null >cut.out 2>/dev/null 3>&- &
    pid=$!
    wait_until 60 runs cut.ditto
    sleep 4
    kill -KILL $pid
    wait $pid || true
    for how in '' --parallel; do
        ditto 0 verify $how cut.ditto
        [[ $output == *'identical up to where the recorder was killed'* ]]
    done
}

# A page that one gets may have been written by another one whose exit behind that is not in the recording.
@test "CPUs at the same time: a recording replays up to wherever its recorder was killed" {
    passes=$((200 + ${LONG:-0} * 200))
    epochs=0
    # There is one in half a second: the quicker the host, the more passes.
    until [ "$epochs" -ge 4 ]; do
        ditto 0 run --quiet -f --smp crew --cpus 2 --chaos 5 -o whole.ditto --memory 32M \
            --append "passes=$passes" --kernel "$BUILD/guests/smp-cut.elf"
        epochs=0
        while "$BUILD/tools/cut_recording" whole.ditto "cut$epochs.ditto" $((epochs + 1)) 2>/dev/null; do
            epochs=$((epochs + 1))
        done
        [ $((passes *= 2)) -lt 20000 ]
    done
    for number in $(seq 1 $(((epochs + 5) / 6)) $((epochs - 2))); do
        ditto 0 verify "cut$number.ditto"
        [[ $output == *'identical up to where the recorder was killed'* ]]
    done
    ditto 0 verify --parallel "cut$((epochs / 2)).ditto"
    # The last one holds the end.
    ditto 0 verify "cut$((epochs - 1)).ditto"
    [[ $output == *identical* ]]
}

# A replay on several threads is stopped at once, too, by a user as by a divergence.
@test "CPUs at the same time: a replay at the same time is stopped, and sees a changed input" {
    # It says that it begins.
    ditto 0 run --quiet --smp crew --cpus 2 -o two.ditto --memory 32M \
        --append 'cpus=2 accesses=30000000 window=0' --kernel "$BUILD/litmus/increments.elf"
    "$DITTO" replay --parallel --json two.ditto </dev/null >two.out 2>two.err 3>&- &
    pid=$!
    wait_until 60 test -s two.out
    stopped_by_user two.err
    grep -q '"result": "stopped"' two.err
    # What is behind that was not compared, so nobody may take it for a verification.
    "$DITTO" verify two.ditto </dev/null >two.out 2>two.err 3>&- &
    pid=$!
    sleep 1.5
    kill -TERM "$pid"
    status=0
    wait "$pid" || status=$?
    [ "$status" != 0 ]

    # The tool knows machines of which one CPU runs.
    ditto 0 run --quiet --smp crew --cpus 2 -o one.ditto --memory 32M --kernel "$BUILD/guests/rdtsc.elf"
    ditto 0 verify --parallel one.ditto
    for seed in 1 2; do
        "$BUILD/tools/flip_input" one.ditto flipped.ditto $seed >flip
        cat flip
        ditto 3 verify --parallel flipped.ditto
        [[ $stderr == *"diverged at sync point $(cut -d: -f1 flip)"$'\n'* ]]
    done

    ditto 0 run --quiet --cpus 2 -o turns.ditto --memory 32M --append 'passes=1000' \
        --kernel "$BUILD/guests/smp-count.elf"
    ditto 2 verify --parallel turns.ditto
    one_error 'did not run at the same time'
    ditto 2 replay --parallel --gdb two.ditto
    one_error '--parallel does not go with --gdb'
}

@test "--smp crew: one CPU is a machine as ever, and what it cannot do yet is refused" {
    ditto 0 run --smp crew -o one.ditto --memory 32M --kernel "$HELLO_ELF"
    ditto 0 verify one.ditto
    ditto 2 run --smp crew --cpus 2 --record --checkpoint-every 1 --kernel "$HELLO_ELF"
    one_error 'cannot have --checkpoint-every yet'
    ditto 2 run --smp crew --cpus 2 --clock step --kernel "$HELLO_ELF"
    one_error 'goes with --clock landmark'
    ditto 2 run --smp loose --cpus 2 --record --kernel "$HELLO_ELF"
    one_error '--smp loose cannot be recorded; give --smp crew or uni'
    ditto 2 run --smp tight --cpus 2 --kernel "$HELLO_ELF"
    one_error "--smp takes uni, crew or loose, not 'tight'"
    nothing_written one.ditto
}

@test "--smp loose: CPUs at the same time, and nothing holds them" {
    ditto 0 run --json --smp loose --cpus 2 --memory 32M --append 'cpus=2 user=0 accesses=100000' \
        --kernel "$BUILD/litmus/increments.elf"
    [[ $output == *'litmus increments '*'loads='*'increments='* ]]
    [[ $stderr == *'"end": "powered off"'* ]]
    nothing_written
}

# QEMU loses what that CPU changes of its state (leave_first_cpu() in guest-tools/khost/agent_setup.c).
@test "no VM runs on the first CPU of the emulated host" {
    run --separate-stderr bounded_tool 60 "$BUILD/tools/in_host" cat /proc/self/status
    [ "$status" = 0 ]
    [[ $stderr == *'running in the emulated KVM host'* ]] || skip 'this CPU has VMX or SVM: there is no emulated host'
    grep '^Cpus_allowed_list:[[:space:]]1-2$' <<<"$output"
}
