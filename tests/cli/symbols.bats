# The guest kernel's symbols, for gdb.
load helper
HELPER=$tree/guest-tools/gdb/dittovm-gdb.py

teardown() {
    [ ! -e qemu.pid ] || kill "$(cat qemu.pid)" 2>/dev/null || true
}

# debugger ARGUMENT...: runs gdb on guest.sym, its output in $output.
debugger() {
    run bounded 60 gdb -nx -batch -ex 'set confirm off' guest.sym "$@" </dev/null
    echo "$output"
}

# shows TEXT: a line of $output is this.
shows() {
    grep -qxF -- "$1" <<<"$output" || {
        echo "expected the line: $1"
        return 1
    }
}

@test "gdb knows the functions and variables of a recording's kernel" {
    need_recording
    "$DITTO" symbols "$HELLO/recorded/hello.ditto" >guest.sym
    debugger -ex 'info symbol 0xffffffff81000123' -ex 'break do_sys_openat2' \
        -ex 'print &jiffies_64' -ex 'info address init_task' -ex 'info symbol &jiffies_64' \
        -ex 'watch *(unsigned long *)&jiffies' -ex 'print (long)&current_task < 0x100000' \
        -ex 'info symbol (long)&do_sys_openat2 + 1'
    [[ $output != *rror* && $output != *arning* && $output != *'No symbol'* ]]
    [[ ${lines[0]} == *' + '*' in section .text' ]]
    [[ ${lines[1]} == 'Breakpoint 1 at 0xffffffff8'* ]]
    [[ ${lines[2]} == *'(<data variable, no debug info> *) 0xffffffff8'*'<jiffies_64>' ]]
    [[ ${lines[3]} == 'Symbol "init_task" is at 0xffffffff8'* ]]
    [[ ${lines[4]} == jiffies*' in section .data' ]]
    [[ ${lines[5]} == 'Hardware watchpoint 2: '* ]]
    shows '$2 = 1'
    shows 'do_sys_openat2 + 1 in section .text'
    # 'symbol-file' takes it as well.
    run bounded 60 gdb -nx -batch -ex 'symbol-file guest.sym' -ex 'info symbol &init_task'
    [[ $output == 'init_task in section .data'* ]]
}

@test "a recording without symbols, and files that are none" {
    ditto 1 symbols "$SHARED/small.ditto"
    one_error 'small.ditto holds no symbols'
    [ -z "$output" ]
    head -c 5000 /dev/urandom >noise
    ditto 65 symbols noise
    one_error noise
    ditto 1 symbols nosuch.ditto
    one_error 'nosuch.ditto.*No such file'
    [ -z "$output" ]
}

@test "symbols: a full disk, a terminal" {
    need_recording
    run bounded 60 bash -c '"$0" symbols "$1" >/dev/full' "$DITTO" "$HELLO/recorded/hello.ditto"
    [ "$status" = 1 ]
    [[ $output == 'dittovm: cannot write the symbols: No space left on device' ]]
    run bounded 60 script -qec "'$DITTO' symbols '$SHARED/small.ditto'" /dev/null
    [ "$status" = 2 ]
    [[ $output == *'not for a terminal; use: dittovm symbols'* ]]
}

@test "where the helper for gdb is" {
    ditto 0 symbols --gdb-helper
    [ "$output" = "$HELPER" ]
    mkdir -p usr/bin usr/share/dittovm/gdb
    cp "$DITTO" usr/bin/dittovm
    run usr/bin/dittovm symbols --gdb-helper
    [ "$status" = 1 ]
    cp "$HELPER" usr/share/dittovm/gdb
    run usr/bin/dittovm symbols --gdb-helper
    [ "$output" = "$PWD/usr/share/dittovm/gdb/dittovm-gdb.py" ]
    ditto 2 symbols --gdb-helper more
}

@test "ditto task in made-up memory" {
    run bounded 60 gdb -nx -batch -x "$HELPER" -x "$tree/tests/cli/gdb_tasks.py"
    diff - <(echo "$output") <<EOT
process: pid 20, comm a b
idle: pid 0, comm swapper/0
thread: pid 10, thread 17, comm sh
first: pid 0, comm swapper
early: comm init (its pid was not found)
other numbers: comm sh (its pid was not found)
loop: comm sh (its pid was not found)
torn list: comm sh (its pid was not found)
no name: unknown: the current task 0xffff888001018000 has no name
no table: unknown: nothing at 0xffffffff83000000
no kernel: unknown: init_task holds no name; is this the guest's kernel, and has it started?
EOT
}

# QEMU runs the same kernel where dittovm puts it, and has a gdb server.
@test "ditto task, a breakpoint and a watchpoint in the real kernel" {
    need_recording
    real=$(command -v qemu-system-x86_64) || skip 'no qemu-system-x86_64'
    "$DITTO" symbols "$HELLO/recorded/hello.ditto" >guest.sym
    image_file '^vmlinuz-' vmlinuz && image_file '^initrd' initrd
    cp --sparse=always "$IMAGE" disk.img
    "$real" -accel tcg -m 256 -nodefaults -display none -serial file:serial -no-reboot -S \
        -drive file=disk.img,if=virtio,format=raw -kernel vmlinuz -initrd initrd \
        -append 'root=/dev/vda1 ro console=ttyS0 quiet nokaslr ditto.script=forks ditto.n=20' \
        -chardev socket,id=gdb,path=gdb.sock,server=on,wait=off -gdb chardev:gdb \
        </dev/null >qemu.out 2>&1 3>&- &
    echo $! >qemu.pid
    for _ in $(seq 100); do [ ! -S gdb.sock ] || break; sleep 0.1; done
    cat >commands <<'EOT'
target remote gdb.sock
hbreak start_kernel
continue
ditto task
delete
break do_sys_openat2
continue
ditto task
delete
watch *(unsigned long *)&jiffies
continue
delete
break do_exit
continue 5
ditto task
ditto info version
kill
EOT
    debugger -x "$HELPER" -x commands
    grep -q 'in start_kernel' <<<"$output"
    grep -q 'task 0xffffffff8.*: pid 0, comm swapper' <<<"$output"
    grep -q 'task 0xffff8.*: pid 1, comm init' <<<"$output"
    grep -q 'Old value = ' <<<"$output"
    grep -qE 'task 0xffff8.*: pid [0-9]{2,}, comm [a-z]' <<<"$output"
    grep -qE '^[0-9]+\.[0-9]+\.[0-9]+' <<<"$output" # what the server's monitor said
}
