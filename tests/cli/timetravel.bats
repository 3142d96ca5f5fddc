# Going back in a recording: by a program, and by a real gdb.
# shellcheck disable=SC2016 # what has a $ in it is for gdb
load helper

travel() {
    bounded_tool 300 "$BUILD/tools/time_travel" "$@" \
        >travel.out 2>&1 || {
        cat travel.out
        return 1
    }
    ! grep '^not ok' travel.out
}

@test "steps there and back, in kernel and user loops, lead to the same registers and memory" {
    local guest
    for guest in count-user hello; do
        ditto_to 120 run.out run.err run --memory 32M -o $guest.ditto --kernel "$BUILD/guests/$guest.elf" \
            --append ticks=10
        travel $guest.ditto 1 4 100
    done
}

@test "the same in Linux, and to its end afterwards" {
    linux_recording
    travel "$linux" 2 $((1 + ${LONG:-0})) $((50 + ${LONG:-0} * 50)) 32
    [ "$(grep -c '^ok' travel.out)" -ge 6 ]
}

# serve ARGUMENT...: replays a recording under gdb; its address is in $address.
serve() {
    command -v gdb >/dev/null || skip "gdb is not installed"
    rm -f serve.err # of one before
    bounded 280 "$DITTO" replay --gdb=unix:"$PWD/socket" "$@" 2>serve.err </dev/null 3>&- &
    await_gdb_server
}

# debug COMMAND...: in gdb, with the guest's symbols; the output is in $output.
debug() {
    in_gdb 250 "${symbols:-guest.sym}" "$@"
    cat serve.err
}

@test "gdb goes through a recording of Linux forwards and backwards" {
    local at
    linux_recording
    "$DITTO" symbols "$linux" >guest.sym
    # One behind which the CPU goes on where it is.
    at=$("$DITTO" dump --from 20 --to 200 "$linux" | awk '$2 == "sync" && /out 0x/ { n = $1; quiet[n] = 1 }
        $2 == "sync" && !/out 0x/ { n = $1 } /interrupt|forced|memory/ && $2 == "event" { quiet[n] = 0 }
        END { for (i = 20; i < 200; i++) if (quiet[i]) { print i; exit } }')
    serve "$linux"
    debug 'monitor when' 'break do_sys_openat2' continue 'monitor checkpoint' 'p $rsp' continue \
        'monitor when' reverse-continue 'p $rsp' reverse-stepi 'x/i $pc' stepi 'monitor when' \
        'delete' reverse-continue 'monitor when' 'monitor seek @1' 'info threads' "monitor seek $at" \
        'maintenance flush register-cache' 'set $at = $pc' stepi stepi 'break *$at' reverse-continue \
        'p $pc == $at' 'monitor when' delete continue kill
    [ "$status" = 0 ]
    wait "$server"
    [[ $output == *'sync point 0,'* ]]
    # Twice forwards, once backwards, and once by stepping.
    [ "$(grep -c '^Breakpoint 1, 0x.* in do_sys_openat2 ()' <<<"$output")" -ge 4 ]
    # The second stop and the last are not the same; the first and the last are.
    [ "$(grep -o '^\$[12] = .*' <<<"$output" | cut -d= -f2 | sort -u | wc -l)" = 1 ]
    [[ $output == *'call '*'<do_sys_openat2>'* ]]
    [[ $output == *'No more reverse-execution history.'*'sync point 0,'* ]]
    # Before user space, where running meets no HLT of ours.
    [[ $output == *'$3 = 1'*"sync point $at and some instructions, "* ]]
    [[ $output != *diverged* ]]
}

@test "gdb begins at a snapshot, and the beginning is within reach" {
    local at
    ditto_to 120 run.out run.err run --json --memory 32M -o c.ditto \
        --kernel "$BUILD/guests/count-user.elf" --append ticks=10
    at=$(($(json_field syncs run.err) * 2 / 3))
    ditto 0 snapshot --quiet --at $at c.ditto
    ditto 0 snapshot --quiet --at $((at / 2)) c.ditto
    travel c.ditto 3 1 100
    [ "$(grep -c 'a snapshot, and played to' travel.out)" = 2 ]
    symbols=$BUILD/guests/count-user.elf
    serve c.ditto@1
    debug 'monitor when' reverse-stepi 'monitor when' stepi reverse-continue 'monitor when' \
        'monitor seek 9' 'monitor snapshot nine' 'monitor snapshot nine' continue stepi 'monitor snapshot last' kill
    [ "$status" = 0 ]
    wait "$server"
    [ "$(grep -c "^sync point $at, rip" <<<"$output")" = 1 ]
    [[ $output == *"sync point $((at - 1)) "*'No more reverse-execution history'*'sync point 0,'* ]]
    [[ $output == *'snapshot nine: sync point 9, '*"has a snapshot 'nine' already"* ]]
    ditto 0 verify c.ditto@nine
    ditto 0 verify c.ditto@last # where a step was tried
    [[ $output != *diverged* ]]
}

@test "gdb steps over a snapshot at a forced point, again and again" {
    local at
    ditto 0 run --memory 32M -o c.ditto --kernel "$BUILD/guests/count-user.elf" --append ticks=10
    at=$("$DITTO" dump c.ditto | awk '$2 == "sync" && /forced point/ && ++n == 3 { print $1 }')
    ditto 0 snapshot --quiet --at "$at" c.ditto
    symbols=$BUILD/guests/count-user.elf
    serve c.ditto@1
    debug reverse-stepi stepi stepi 'monitor when' reverse-stepi reverse-stepi 'monitor when' stepi stepi continue \
        'monitor seek @1' 'monitor when' kill
    [ "$status" = 0 ]
    wait "$server"
    [ "$(grep -c "^sync point $at" <<<"$output")" -ge 1 ]
    [[ $output != *diverged* ]]
    ditto 0 verify c.ditto@1
}

# Stepping executes it together with what happens at the sync point; running stops before it.
@test "a breakpoint on the first instruction behind a sync point is a place: there, back, and from it" {
    ditto_to 120 run.out run.err run --memory 32M -o hello.ditto --kernel "$HELLO_ELF"
    symbols=$HELLO_ELF
    serve hello.ditto
    debug 'monitor seek 20' 'maintenance flush register-cache' 'set $at = $pc' stepi stepi 'break *$at' \
        reverse-continue 'p $pc == $at' 'monitor when' reverse-continue 'p $pc == $at' 'monitor when' \
        continue 'p $pc == $at' 'monitor when' reverse-stepi 'p $pc == $at' stepi 'p $pc == $at' 'monitor when' kill
    [ "$status" = 0 ]
    wait "$server"
    [[ $output != *diverged* && $output != *'not found again'* ]]
    [ "$(grep '^\$[0-9]* = ' <<<"$output" | cut -d ' ' -f 3 | tr -d '\n')" = 11101 ]
    # Where it stops is not the sync point itself, but where that has been left to.
    [ "$(grep -o '^sync point .*, rip' <<<"$output" | sed 's/sync point //; s/ and some instructions/+/; s/,.*//' |
        tr '\n' ' ')" = '20 20+ 18+ 20+ 20 ' ]
}

# In one long pass a place comes once, so that its last hit before here is the forced point itself.
@test "a breakpoint at a forced point, and the way back past it" {
    local at
    ditto_to 120 run.out run.err run --memory 32M -o c.ditto --kernel "$BUILD/guests/long-pass.elf"
    at=$("$DITTO" dump c.ditto | awk '$2 == "sync" && /forced point/ && ++n == 4 { print $1 }')
    symbols=$BUILD/guests/long-pass.elf
    serve c.ditto
    debug "monitor seek $at" 'maintenance flush register-cache' 'set $at = $pc' 'break *$at' "monitor seek $((at + 7))" \
        'maintenance flush register-cache' reverse-continue 'p $pc == $at' 'monitor when' reverse-continue \
        'p $pc == $at' 'monitor when' reverse-continue 'monitor when' continue 'p $pc == $at' 'monitor when' continue \
        'monitor when' kill
    [ "$status" = 0 ]
    wait "$server"
    [[ $output != *diverged* && $output != *'not found again'* ]]
    # Its interrupt is taken first, and the instruction is where that one's end leads to. Both are places where the
    # CPU comes to it, on the way back as forwards.
    [[ $output == *'$1 = 1'*" and some instructions, "*'$2 = 1'*"sync point $at, "*'No more reverse-execution history'* ]]
    [[ $output == *'sync point 0, '*'$3 = 1'*"sync point $at, "*' and some instructions, '* ]]
}

@test "x87 and SSE registers are there behind a snapshot, on the way back, and live" {
    ditto_to 120 run.out run.err run --memory 32M -o c.ditto --kernel "$BUILD/guests/fpu-state.elf"
    ditto 0 snapshot --quiet --at 20 c.ditto
    ditto_to 120 replay.out replay.err replay c.ditto@1
    cmp run.out replay.out # it puts out nothing before
    ditto 0 verify c.ditto@1
    [[ $output == *identical* ]]
    ditto_to 120 live.out live.err run --from c.ditto@1 -o live.ditto
    cmp run.out live.out
    ditto 0 verify live.ditto
    symbols=$BUILD/guests/fpu-state.elf
    serve c.ditto
    debug 'p/x $mxcsr' 'monitor seek 30' 'maintenance flush register-cache' 'p/x $mxcsr' 'p/x $xmm15.v2_int64[0]' \
        'monitor seek 1' 'monitor seek 25' 'maintenance flush register-cache' 'p/x $mxcsr' reverse-continue \
        'p/x $mxcsr' kill
    [ "$status" = 0 ]
    wait "$server"
    # As numbers: gdb shows the flags of the register by their names.
    [ "$(sed -n 's/^\$[0-9]* = //p' <<<"$output" | tr '\n' ' ')" = '0x1f80 0x7fa0 0xfedcba9876543210 0x7fa0 0x1f80 ' ]
}

@test "gdb walks back from a corrupted word to the instruction that wrote it" {
    ditto_to 120 run.out run.err run --memory 32M -o c.ditto --kernel "$BUILD/guests/corrupt.elf"
    grep -q 'somebody has written over it' run.out
    symbols=$BUILD/guests/corrupt.elf
    serve c.ditto
    # As in README.md. The balance is the word behind the ring's 512.
    debug continue 'p ((unsigned long *)&shared)[512]' 'watch ((unsigned long *)&shared)[512]' \
        reverse-continue 'x/i $pc' 'p ((unsigned long *)&shared)[512]' 'info registers rdi' \
        reverse-continue 'p ((unsigned long *)&shared)[512]' reverse-continue kill
    [ "$status" = 0 ]
    wait "$server"
    [[ $output == *'New value = 1000'*' in store ()'*'$2 = 1000'* ]]
    [[ $output == *'=> '*'<store'*'mov '* ]]
    # Slot 512 of 512.
    [[ $output == *'rdi            0x200 '* ]]
    # Before that it was written once more, at the start; and not at all before.
    [[ $output == *'$3 = 0'*'No more reverse-execution history'* ]]
    [[ $output != *diverged* ]]
}

@test "what if the word had not been overwritten: a change, what comes of it, and back" {
    ditto_to 120 run.out run.err run --memory 32M -o c.ditto --kernel "$BUILD/guests/corrupt.elf"
    symbols=$BUILD/guests/corrupt.elf
    serve --diverge c.ditto
    debug continue 'p ((unsigned long *)&shared)[512]' 'watch ((unsigned long *)&shared)[512]' \
        reverse-continue delete 'p $rdi' 'p $rdi = 511' 'monitor when' continue \
        'p ((unsigned long *)&shared)[512]' 'monitor when' 'monitor checkpoint' continue reverse-stepi \
        'p $rdi' 'monitor when' 'set var ((unsigned long *)&shared)[512] = 7' \
        'p ((unsigned long *)&shared)[512]' stepi 'monitor snapshot' 'set var $rax = 12345' 'p $rax' \
        'monitor seek 3' continue 'p ((unsigned long *)&shared)[512]' kill
    [ "$status" = 0 ]
    wait "$server"
    # It goes on to the report of what it has found, which is not what was recorded.
    [[ $output == *'$2 = 512'*'$3 = 511'*', changed at sync point'*'leads away from the recording at sync point '*' is 0x'*', recorded: 0x'*'$4 = 1000'* ]]
    [ "$(grep -c 'leads away from the recording' <<<"$output")" = 2 ]
    [ "$(grep -c 'this is not what was recorded: go back' <<<"$output")" = 2 ]
    [[ $output == *'what was changed is undone'*'$5 = 512'* ]]
    [[ $output == *'$6 = 7'*'$7 = 12345'* ]]
    # And then it is what it was.
    [ "$(sed -n 's/^\$[18] = //p' <<<"$output" | sort -u | wc -l)" = 1 ]
    [[ $output != *diverged* ]]
    ditto 0 verify c.ditto
    ditto 2 replay --diverge c.ditto
    one_error '--diverge goes with --gdb'
}

# What registers and the memory around them tell of a pass is the same in each of the outer loop.
@test "reverse-continue to breakpoints in a loop that is passed 20 million times" {
    local count='p *(unsigned long *)&outer' n
    ditto_to 120 run.out run.err run --memory 32M -o c.ditto --append alone=10000 --kernel "$BUILD/guests/nested-loop.elf"
    symbols=$BUILD/guests/nested-loop.elf
    serve c.ditto
    debug 'tbreak leave_user' continue "$count" 'break alone_inner' reverse-continue "$count" 'p $eax' \
        reverse-continue "$count" 'p $eax' delete 'break alone_outer' reverse-continue "$count" reverse-continue \
        "$count" 'break alone_inner' reverse-continue "$count" 'p $eax' reverse-stepi stepi "$count" 'p $eax' kill
    [ "$status" = 0 ]
    wait "$server"
    n=$(sed -n 's/^\$1 = //p' <<<"$output")
    [ "$(sed -n 's/^\$[0-9]* = //p' <<<"$output" | tr '\n' ' ')" = \
        "$n $n 1 $n 2 $((n - 1)) $((n - 2)) $((n - 2)) 1 $((n - 2)) 1 " ]
}

# Calls of functions that come out of the guest in their middle: counted inside the guest, behind what comes out, at
# it, and at the beginning. Twice at each place, of which a lower one comes in the same call, a higher one before.
@test "reverse-continue to breakpoints in code with exits, interrupts and faults" {
    local at call before offset expected='' commands=('tbreak done' continue)
    while read -ra at; do
        call=2000 before=-1
        for offset in "${at[@]:1}"; do
            [ "$offset" -le "$before" ] || call=$((call - 1))
            commands+=("break *((long)&${at[0]} + $offset)" reverse-continue 'p *(long *)&call' reverse-continue
                'p *(long *)&call' delete)
            expected+="$call $((call - 1)) "
            call=$((call - 1)) before=$offset
        done
    done <<'END'
reads_tsc 24 0
faults 15 12 0
lets_in_by_popf 12 10 9 0
lets_in_by_sti 4 2 0 1 0
adds_mmio 10 0
stores_mmio 10 6 0
reads_msr 8 6 0
END
    ditto_to 120 run.out run.err run --memory 32M -o c.ditto --kernel "$BUILD/guests/loop-exits.elf"
    symbols=$BUILD/guests/loop-exits.elf
    serve c.ditto
    debug "${commands[@]}" kill
    [ "$status" = 0 ]
    wait "$server"
    [ "$(sed -n 's/^\$[0-9]* = //p' <<<"$output" | tr '\n' ' ')" = "$expected" ]
}

# Each instruction of `chain` that goes out makes several accesses, which are sync points of their own.
@test "nobody stands in the middle of an instruction: seek, stepi, reverse-stepi, snapshot" {
    local at i there back forth=() ago=() place='s/^\$[0-9]* = \(0x.*\)/\1/p; s/^sync point \([0-9]*\).*/\1/p'
    for i in $(seq 40); do
        forth+=(stepi 'p/x $pc' 'monitor when')
        ago+=('p/x $pc' 'monitor when' reverse-stepi)
    done
    ditto_to 60 run.out run.err run --memory 32M -o c.ditto --kernel "$BUILD/guests/mmio-chains.elf" --append rounds=2
    symbols=$BUILD/guests/mmio-chains.elf
    serve c.ditto
    debug 'break *(long)&chain' continue "${forth[@]}" 'echo BACK\n' "${ago[@]}" kill
    [ "$status" = 0 ]
    wait "$server"
    there=$(sed '/^BACK/,$d' <<<"$output" | sed -n "$place" | paste -sd ' \n')
    back=$(sed '1,/^BACK/d' <<<"$output" | sed -n "$place" | paste -sd ' \n')
    [ "$(wc -l <<<"$there")" = 40 ]
    [ "$there" = "$(tac <<<"$back")" ]
    at=$("$DITTO" dump c.ditto | awk '/mmio read/ && !n { n = $1 } END { print n }')
    serve c.ditto
    debug "monitor seek $at" 'monitor when' 'maintenance flush register-cache' 'p (long)&chain_adds == (long)$pc' kill
    [[ $output == *"sync point $((at + 1)),"*'= 1'* ]]
    wait "$server"
    ditto 0 snapshot --at "$at" --every 1 c.ditto
    [ "$(grep -c "snapshot .* at sync point $((at + 1)):" <<<"$output")" = 1 ]
    ditto 0 verify c.ditto@1
    ditto 0 verify c.ditto@7
    # Nor where a snapshot says so, in an instruction of three accesses.
    at=$("$DITTO" dump c.ditto | awk '/mmio write .*, 3 bytes/ && !n { n = $1 } END { print n - 1 }')
    bounded_tool 60 "$BUILD/tools/hostile_snapshots" c.ditto 0 "$at" \
        >hostile.out 2>&1 || true
    cat hostile.out
    grep -q '^ok 1' hostile.out
}

@test "what if it looped for ever: gdb interrupts it, and reverse-continue undoes it" {
    ditto_to 120 run.out run.err run --memory 32M -o c.ditto --kernel "$BUILD/guests/corrupt.elf"
    symbols=$BUILD/guests/corrupt.elf
    serve --diverge c.ditto
    debug 'break store' continue delete 'p *(unsigned short *)&store' 'set var *(unsigned short *)$pc = 0xfeeb' \
        'shell (sleep 2; kill -INT $PPID) >/dev/null 2>&1 &' continue 'x/i $pc' 'monitor when' \
        reverse-continue 'p *(unsigned short *)&store' 'monitor when' continue kill
    [ "$status" = 0 ]
    wait "$server"
    [[ $output == *'received signal SIGINT'*'=> '*'<store>:'*'jmp '*', changed at sync point'* ]]
    [[ $output == *'what was changed is undone'* ]]
    [ "$(sed -n 's/^\$[12] = //p' <<<"$output" | sort -u | wc -l)" = 1 ]
    [[ $output == *'No more reverse-execution history'* ]]
    [[ $output != *diverged* ]]
}

# With one input changed the guest hangs with interrupts off: no sync point ever comes.
@test "a replay that comes to nothing any more is interrupted by gdb, and ended by a signal" {
    local seed at
    ditto 0 run --memory 32M -o c.ditto --kernel "$BUILD/guests/standstill.elf"
    for seed in $(seq 40); do
        "$BUILD/tools/flip_input" c.ditto flipped.ditto "$seed" >flip
        ! grep -q '^[1-3]:' flip && grep -q 'in 0x64' flip && break
    done
    cat flip
    at=$(($(cut -d: -f1 flip) - 1))
    symbols=$BUILD/guests/standstill.elf
    # With a breakpoint of a user's, the replay runs in another way.
    for breakpoint in 'break *0x1' 'monitor when'; do
        serve flipped.ditto
        debug "$breakpoint" 'shell (sleep 2; kill -INT $PPID) >/dev/null 2>&1 &' continue 'monitor when' \
            reverse-stepi stepi 'monitor when' kill
        [ "$status" = 0 ]
        wait "$server"
        [[ $output == *'received signal SIGINT'* ]]
        [ "$(grep -c "^sync point $at, rip" <<<"$output")" = 2 ]
    done
    rm -f serve.err
    "$DITTO" replay --gdb=unix:"$PWD/socket" flipped.ditto 2>serve.err </dev/null 3>&- &
    await_gdb_server
    debug "shell (sleep 2; kill -TERM $server) >/dev/null 2>&1 &" continue
    wait "$server" || true
    rm flipped.ditto
}

@test "watched memory in Linux stops behind each change, and before it on the way back" {
    linux_recording
    "$DITTO" symbols "$linux" >guest.sym
    serve "$linux"
    local at=$(($(json_field syncs "$linux_err") / 3))
    debug "monitor seek $at" 'watch *(unsigned long *)&jiffies' continue continue 'x/i $pc' \
        reverse-continue reverse-continue 'x/i $pc' delete continue kill
    [ "$status" = 0 ]
    wait "$server"
    [ "$(grep -c '^Old value' <<<"$output")" = 4 ]
    local first last
    first=$(grep -m 1 '^Old value' <<<"$output") last=$(grep '^New value' <<<"$output" | tail -n 1)
    [ "${first##* }" = "${last##* }" ]
    [[ $output == *'No more reverse-execution history'* ]]
    [[ $output != *diverged* ]]
}

# rep_changes USER: goes through the changes of the word that tests/guests/rep-watch.c watches, to the
# end and back; F and R lines with rip, rcx and the word.
rep_changes() {
    local word='*(unsigned short *)((char *)&to + 4096)' commands=() i
    ditto_to 120 run.out run.err run --memory 32M -o "rep$1.ditto" --kernel "$BUILD/guests/rep-watch.elf" \
        --append "user=$1"
    symbols=$BUILD/guests/rep-watch.elf
    serve "rep$1.ditto"
    for i in $(seq 16); do
        commands+=(continue "printf \"F %lx %lu %x\\n\", \$rip, \$rcx, $word")
        [ "$i" != 2 ] || commands+=('monitor checkpoint')
        # Across a change and back: gdb has to hear of both, or takes the next one for none.
        [ "$i" != 9 ] || commands+=(stepi reverse-stepi 'monitor checkpoint')
    done
    for i in $(seq 16); do
        commands+=(reverse-continue "printf \"R %lx %lu %x\\n\", \$rip, \$rcx, $word")
        [ "$i" != 4 ] || commands+=(reverse-stepi stepi)
    done
    debug "watch $word" "${commands[@]}" 'monitor seek @1' \
        'maintenance flush register-cache' "printf \"C %lx %lu %x\\n\", \$rip, \$rcx, $word" kill
    [ "$status" = 0 ]
    wait "$server"
    [[ $output != *'failure reply'* && $output != *diverged* ]]
}

@test "watched memory that string instructions write: every change, there and back, in kernel and user code" {
    local user
    for user in 0 1; do
        rep_changes $user
        # 15 changes, each by an iteration that is not the last one, and the end; on the way back the places
        # before them, and the beginning.
        awk '/^F / { rip[++f] = $2; rcx[f] = $3; word[f] = $4 }
             /^R / { r++; back[r] = $2 " " $3 " " $4 }
             /^C / { at = $2 " " $3 " " $4 }
             END {
                 bad = f != 16 || r != 16 || at != rip[2] " " rcx[2] " " word[2]
                 for (i = 1; i < f; i++) {
                     before = i > 1 ? word[i - 1] : 0
                     if (back[16 - i] != rip[i] " " rcx[i] + 1 " " before || word[i] == before)
                         bad = 1
                 }
                 exit bad
             }' <<<"$output"
        [[ $output == *'No more reverse-execution history'* ]]
    done
}

# movs_changes ROUNDS PARAMETERS ARGUMENT...: goes through the changes of the byte that tests/guests/movs-watch.c
# watches, to the end and back: F and R lines with its value.
movs_changes() {
    local i rounds=$1 parameters=$2 stops=$((2 * $1 + 1)) commands=()
    local change='printf "%c %d\n", $way, *(unsigned char *)&word'
    shift 2
    ditto_to 120 run.out run.err run --json --memory 32M -o movs.ditto --kernel "$BUILD/guests/movs-watch.elf" \
        --append "rounds=$rounds $parameters" "$@"
    symbols=$BUILD/guests/movs-watch.elf
    serve movs.ditto
    for i in $(seq $stops); do commands+=(continue "$change"); done
    commands+=("set \$way = 'R'")
    for i in $(seq $stops); do
        commands+=('set debug remote 1' reverse-continue 'set debug remote 0' "$change")
    done
    debug 'watch *(unsigned char *)&word' "set \$way = 'F'" "${commands[@]}" kill
    [ "$status" = 0 ]
    wait "$server"
    # Each round, and the ends of the recording.
    [ "$(grep -cx 'F 255' <<<"$output") $(grep -cx 'F 0' <<<"$output")" = "$rounds $((rounds + 1))" ]
    [ "$(grep -cx 'R 255' <<<"$output") $(grep -cx 'R 0' <<<"$output")" = "$rounds $((rounds + 1))" ]
    # gdb goes on by itself where it is told of a stop without a cause.
    [ "$(grep -c 'Sending packet: \$bc#' <<<"$output")" = $stops ]
    [[ $output != *'not found again'* && $output != *diverged* ]]
}

@test "watched memory that a MOVS from a device changes while an interrupt waits: every change, there and back" {
    movs_changes 40 ''
}

@test "the same where a forced point comes behind the MOVS" {
    movs_changes 10 'spins=3000000 hz=100' --grace 0
    [ "$(json_field forced run.err)" -ge 3 ]
}

@test "a forced point right behind the store that changes watched memory: there, and back over it" {
    local value='printf "%d at %lx\n", *(unsigned char *)0x401000, $rip'
    serve "$tree/tests/golden/v26-forced-behind-store.ditto"
    symbols=$BUILD/guests/movs-watch.elf
    debug 'monitor seek 21' 'watch *(unsigned char *)0x401000' continue "$value" continue "$value" \
        reverse-continue "$value" reverse-continue "$value" reverse-continue "$value" kill
    [ "$status" = 0 ]
    wait "$server"
    [ "$(grep -E '^[0-9]+ at ' <<<"$output" | tr '\n' ' ')" = \
        '0 at 200093 255 at 200057 0 at 200056 255 at 20008c 0 at 200056 ' ]
    [[ $output != *'failure reply'* && $output != *diverged* ]]
}

# walk RECORDING SEED ROUNDS SYNC BACK STEPS
walk() {
    bounded_tool 300 "$BUILD/tools/timeline_walk" "$@" >walk.out 2>&1 || {
        cat walk.out
        return 1
    }
    [ "$(grep -c '^ok' walk.out)" = "$3" ]
}

@test "walks at random lead where single steps say: around forced points, in kernel and user loops, over a snapshot, and at #GPs" {
    local at golden=$tree/tests/golden
    walk "$golden/v26-forced-behind-store.ditto" "${SEED:-1}" $((4 + 40 * ${LONG:-0})) 23 30 300
    # Behind 700,000 passes of the same instruction.
    walk "$golden/v26-count-user.ditto" "${SEED:-1}" $((3 + 40 * ${LONG:-0})) 70 30 250
    ditto_to 120 run.out run.err run --memory 32M -o hello.ditto --kernel "$BUILD/guests/hello.elf"
    ditto 0 snapshot --quiet --at 20 hello.ditto
    walk hello.ditto "${SEED:-1}" $((6 + 40 * ${LONG:-0})) 20 8 300
    # A breakpoint at an instruction that raises #GP at each pass.
    ditto_to 120 run.out run.err run --memory 32M -o c.ditto --kernel "$BUILD/guests/loop-exits.elf"
    at=$("$DITTO" dump c.ditto | awk '/general protection/ && ++n == 2500 { print $1 }')
    walk c.ditto "${SEED:-1}" $((6 + 40 * ${LONG:-0})) "$at" 30 200
}

@test "the checkpoint that going on makes behind a snapshot is not before it" {
    ditto_to 120 run.out run.err run --memory 32M -o hello.ditto --kernel "$BUILD/guests/hello.elf"
    ditto 0 snapshot --quiet --at 20 hello.ditto
    symbols=$BUILD/guests/hello.elf
    serve hello.ditto
    debug 'monitor seek 19' 'stepi 100' 'monitor seek 50' reverse-continue 'monitor when' kill
    wait "$server"
    [[ $output == *'No more reverse-execution history'*'sync point 0, '* && $output != *'failure reply'* ]]
}

@test "gdb asks what other stubs answer, is told why not, runs again, and watches across pages" {
    local word
    ditto_to 120 run.out run.err run --memory 32M -o c.ditto --kernel "$BUILD/guests/corrupt.elf"
    serve c.ditto
    local commands=('monitor foo' monitor 'monitor info version' 'monitor info registers' 'monitor info mem'
        'set var ((unsigned long *)&shared)[1] = 1' 'monitor when' 'break store' continue 'monitor checkpoint' run
        'monitor when' 'monitor info checkpoints' delete 'watch *(unsigned long *)((char *)&shared + 4092)')
    # In more pages than a hand has fingers, and in many of them.
    for word in 0x1000000 0x1010000 0x1020000 0x1030000 0x1040000 0x1050000; do
        commands+=("watch *(long *)$word")
    done
    commands+=('watch *(char (*)[60000])0x1100ff0' continue continue 'x/i $pc' reverse-continue reverse-continue
        'x/i $pc' kill)
    local arguments=() command
    for command in "${commands[@]}"; do
        arguments+=(-ex "$command")
    done
    run bounded 250 gdb -nx -batch "$BUILD/guests/corrupt.elf" -ex "target extended-remote $address" \
        "${arguments[@]}" </dev/null
    echo "$output"
    cat serve.err
    [ "$status" = 0 ]
    wait "$server"
    [[ $output == *"no command 'foo'"*'when        where'*"$("$DITTO" version)"*'CR3=0000000000010000'* ]]
    [[ $output == *'0000000000000000-0000000100000000 0000000100000000 -rwx'* ]]
    [[ $output != *'Protocol error'* && $output != *'Remote connection closed'* ]]
    # What gdb itself says, and with the next command why.
    [[ $output == *'Cannot access memory'*'replay --gdb --diverge'*'sync point 0,'*' s after its start (20'* ]]
    # Twice at the same first call, with the checkpoint of the first time.
    [ "$(grep -c '^Breakpoint 1, .* in store ()' <<<"$output")" = 2 ]
    [[ $output == *' 1: sync point '* ]]
    # Slot 511's upper half and the word behind it.
    [ "$(grep -c '^Old value' <<<"$output")" = 4 ]
    [ "$(grep -m 1 '^Old value' <<<"$output" | sed 's/.*= //')" = \
        "$(grep '^New value' <<<"$output" | tail -n 1 | sed 's/.*= //')" ]
    [[ $output != *diverged* ]]
}
