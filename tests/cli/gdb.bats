# A real gdb and the gdb server, over the fake target of the unit tests.
# shellcheck disable=SC2016 # what has a $ in it is for gdb
load helper

# serve OPTION...: starts it; its address for "target remote" is in $address.
serve() {
    [ -x "$BUILD/tools/gdb_fake" ] || skip "no $BUILD/tools/gdb_fake; run 'make test-tools'"
    command -v gdb >/dev/null || skip "gdb is not installed"
    bounded_tool 120 "$BUILD/tools/gdb_fake" "$@" \
        unix:"$PWD/socket" 2>serve.err </dev/null 3>&- &
    await_gdb_server
}

# debug COMMAND...: in gdb, the output is in $output.
debug() {
    in_gdb 60 '' "$@"
}

# what_gdb_does: the commands that people use most.
what_gdb_does() {
    debug 'info registers rip cr0 st0' stepi stepi reverse-stepi 'x/2i $pc' 'break *0x401008' \
        continue continue reverse-continue delete reverse-continue 'monitor help' detach
    [ "$status" = 0 ]
    [[ $output == *'cr0            0x80050033          [ PE MP ET NE WP AM PG ]'* ]]
    [[ $output == *'st0            1 '* ]]
    [[ $output == *'=> 0x401001:'* ]]
    [[ $output == *'Breakpoint 1, 0x0000000000401008'* ]]
    [[ $output == *'No more reverse-execution history.'* ]]
    [[ $output == *'help, where, long'* ]]
    [[ $output == *'detached]'* ]]
    # The next one finds it as the last has left it.
    debug 'watch *(long*)0x402000' continue 'set var $rax = 1'
    [[ $output == *'Old value = 0'*'New value = 1'* ]]
    [[ $output == *'cannot be changed'* ]]
    debug kill
    wait "$server"
}

@test "gdb steps, stops and goes back" {
    serve
    what_gdb_does
    [ ! -e socket ]
}

@test "gdb reaches into the emulated KVM host" {
    serve --emulated
    what_gdb_does
    [ "$(grep -c 'waiting for gdb' serve.err)" = 1 ]
    [ ! -e socket ]
}
