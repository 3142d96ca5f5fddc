#!/usr/bin/env bats
# `dittovm core`: memory and registers of a machine at places of a recording, as debuggers read them.
load helper

# shown PATTERN: the first line of $output that matches.
shown() {
    grep -m 1 -- "$1" <<<"$output"
}

# core_shows CORE COMMAND...: in a gdb on guest.sym and a core.
core_shows() {
    local core=$1 command arguments=()
    shift
    for command; do
        arguments+=(-ex "$command")
    done
    run bounded 60 gdb -nx -batch guest.sym "$core" "${arguments[@]}" </dev/null
    echo "$output"
}

@test "cores of Linux at two places: gdb shows the registers and memory that a replay has there" {
    linux_recording
    local place last n=0 command
    last=$("$DITTO" dump "$linux" | awk '/^ *[0-9]+  sync/ { last = $1 } END { print last }')
    "$DITTO" symbols "$linux" >guest.sym
    "$DITTO" replay --gdb "$linux" >serve.out 2>serve.err </dev/null 3>&- &
    await_gdb_server
    local show=('info registers rip' 'info registers rsp' 'info registers rax' 'info registers cs'
        'x/s &linux_banner' 'x/16xg ((unsigned long)$rsp) & ~255' 'x/2xg &jiffies_64')
    local -a commands=()
    for place in $((last / 2)) $((last - 100)); do
        commands+=("monitor seek $place" "maintenance flush register-cache" 'echo == place\n' "${show[@]}")
    done
    in_gdb 120 guest.sym "${commands[@]}" kill
    wait "$server"
    awk '/^== place/ { n++; next } n { print > ("replay." n) }' <<<"$output"
    for place in $((last / 2)) $((last - 100)); do
        n=$((n + 1))
        ditto 0 core --json "$linux@$place" -o "at-$n.core"
        [ "$(jq -r '"\(.output) \(.cpus) \(.sync)"' <<<"$output")" = "at-$n.core 1 $place" ]
        [ "$(jq .vmcoreinfo <<<"$output")" -gt 1000 ]
        jq -e ".seconds > 0" <<<"$output"
        [ -z "$(grep 'no VMCOREINFO' <<<"$stderr")" ]
        readelf -h "at-$n.core" | grep -q 'CORE (Core file)'
        readelf -ln "at-$n.core" >readelf.out 2>&1
        grep -q 'LOAD .* 0xffff888000000000 0x0000000000000000$' readelf.out
        ! grep -i 'warning\|error' readelf.out
        [ "$(grep -c 'CORE .*NT_PRSTATUS' readelf.out)" = 1 ]
        strings -n 20 "at-$n.core" | grep -qm 1 "^OSRELEASE=[5-9]\."
        [ "$(stat -c %b "at-$n.core")" -lt $(($(stat -c %s "at-$n.core") / 512 / 2)) ] # it is sparse
        core_shows "at-$n.core" 'echo == place\n' "${show[@]}"
        sed '1,/^== place/d' <<<"$output" >shown
        grep -q 'Linux version' shown
        diff shown <(head -n "$(wc -l <shown)" "replay.$n")
    done
    ! cmp -s at-1.core at-2.core
    ditto 0 core --compress "$linux@$((last - 100))" -o at-2.kdump
    [ "$(head -c 8 at-2.kdump)" = 'KDUMP   ' ]
    strings -n 6 at-2.kdump | head -n 4 | grep -q '^[5-9]\..*-amd64$' # in its header
    [ "$(stat -c %s at-2.kdump)" -lt $(($(stat -c %b at-2.core) * 512 / 2)) ]
    ditto 0 core "$linux" -o end.core
    [[ $output == *'end.core: the machine as it was at sync point '"$last"', the end: '*' bytes of memory, of which '* ]]
}

@test "early in boot, and of a machine without Linux: without VMCOREINFO, said in a line" {
    small_recording small.ditto
    ditto 0 core small.ditto -o small.core
    one_error 'no VMCOREINFO in small.core.*: the recording has no symbols of its kernel'
    readelf -l small.core | grep -q 'LOAD .* 0xffff888000000000 0x0000000000000000$'
    ditto 0 core --quiet small.ditto@1 -o first.core
    [ -z "$output" ]
    ditto 0 core --compress --quiet small.ditto -o small.kdump
    [ "$(head -c 8 small.kdump)" = 'KDUMP   ' ]
    long
    linux_recording
    ditto 0 core "$linux@3" -o early.core
    one_error 'no VMCOREINFO in early.core'
}

@test "several CPUs, taking turns and at the same time" {
    local how
    for how in uni crew; do
        ditto 0 run --quiet -o $how.ditto --memory 32M --cpus 2 --smp $how --kernel "$BUILD/guests/smp-count.elf"
        ditto 0 core $how.ditto -o $how.core
        [ "$(readelf -n $how.core 2>/dev/null | grep -c 'CORE .*NT_PRSTATUS')" = 2 ]
        ditto 0 core $how.ditto@20 -o $how-20.core
        run bounded 60 gdb -nx -batch -ex "core $how-20.core" -ex 'info threads' </dev/null
        [[ $output == *'LWP 1'*'LWP 2'* ]]
    done
}

@test "what cannot be is told in a line, and leaves nothing" {
    small_recording a.ditto
    cp a.ditto other
    ditto 2 core a.ditto
    one_error 'give -o FILE'
    ditto 2 core -o x
    one_error 'give one recording'
    ditto 1 core a.ditto@99999999 -o x
    one_error 'there is no 99999999'
    ditto 1 core a.ditto@half -o x
    one_error 'has no snapshot'
    ditto 1 core nosuch.ditto -o x
    one_error 'nosuch.ditto.*No such file'
    ditto 1 core a.ditto -o /nowhere/x
    one_error 'cannot make /nowhere/x'
    ditto 1 core a.ditto -o /dev/null --force
    one_error 'it is no file'
    ditto 1 core a.ditto -o other
    one_error 'other exists; give --force'
    ditto 2 core a.ditto -o a.ditto --force
    one_error 'a.ditto is the recording itself'
    nothing_written a.ditto other
    ditto 0 core --force a.ditto -o other
    readelf -h other | grep -q 'CORE (Core file)'
    [ "$(id -u)" = 0 ] || skip 'only root can mount a small file system'
    mkdir small
    mount -t tmpfs -o size=16k tmpfs small || skip 'file systems cannot be mounted here'
    run --separate-stderr bounded 120 "$DITTO" core a.ditto -o small/x
    echo "$stderr"
    [ "$status" = 1 ] && [ -z "$(ls small)" ] || status=wrong
    umount small
    [ "$status" = 1 ]
    one_error 'cannot write to small/x: No space left on device'
}
