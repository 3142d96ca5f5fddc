# A command as the unit of work: run --root DIR -- COMMAND. Each boot of Linux takes some 10 s.
load helper

# need_kernel: a stock kernel in $kernel and its modules beside it, and a small root in $root.
need_kernel() {
    local at=$BATS_FILE_TMPDIR name
    kernel=$at/boot/vmlinuz root=$at/root
    [ ! -e "$root.away" ] || mv "$root.away" "$root" # of a test that failed
    [ ! -e "$kernel" ] || return 0
    mkdir -p "$at/boot" "$root/bin" "$root/etc" "$root/data"
    dpkg-deb --fsys-tarfile "$BUILD"/cache/linux-image-*-cloud-amd64_*.deb |
        tar -x -C "$at" --wildcards './boot/vmlinuz*' './lib/modules/*/modules.*' '*virtio*'
    cp /bin/busybox "$root/bin/"
    for name in sh cat true false sleep tty stty; do
        ln -s busybox "$root/bin/$name"
    done
    echo text >"$root/etc/text"
    cp "$at"/boot/vmlinuz-* "$kernel"
}

# random_bytes FILE: 1 MiB.
random_bytes() {
    dd if=/dev/urandom of="$1" bs=1M count=1 status=none
}

@test "a command's status is dittovm's, and what goes through its pipes is unchanged" {
    need_kernel
    random_bytes in
    cp in "$root/data/file"
    DITTO_IN=$PWD/in ditto 7 run --quiet -o c.ditto --kernel "$kernel" --root "$root" -- \
        sh -c 'cat; echo error >&2; cat /data/file >&2; echo x >/data/new && exit 7'
    cmp in "$BATS_TEST_TMPDIR/out"
    { echo error && cat in; } >err.expected
    tail -c "$(stat -c %s err.expected)" "$BATS_TEST_TMPDIR/err" | cmp - err.expected
    [ ! -e "$root/data/new" ]
    ditto 0 info c.ditto
    [[ $output == *"command       sh -c 'cat; "*", in $root"* ]]
    [[ $output == *"the command ended with status 7"* ]]
    # A replay needs none of it, and shows it again.
    mv "$root" "$root.away"
    ditto 0 replay --json c.ditto
    mv "$root.away" "$root"
    # By pages: 3 MiB of single bytes would be as many sync points.
    [ "$(json_field syncs "$BATS_TEST_TMPDIR/err")" -lt 1000000 ]
    [ "$(stat -c %s "$BATS_TEST_TMPDIR/out")" -ge $((2 * 1048576)) ]
    ditto 1 run --from c.ditto@2000
    one_error 'its disk cannot be had again'
}

@test "a command whose reader has gone gets SIGPIPE, and processes that it leaves keep nobody" {
    need_kernel
    ln -sf busybox "$root/bin/yes"
    run -0 bounded 200 sh -c '"$@" 2>err | head -n 1' sh \
        bash -c '"$@"; echo "was $?" >&2' bash "$DITTO" run --record --quiet -o y.ditto \
        --kernel "$kernel" --root "$root" -- sh -c 'yes; echo "it $?" >&2; yes x >&2 & sleep 1; exit 3'
    head -c 300 err
    [ "$output" = y ]
    grep -q 'was 3$' err
    grep -qx 'it 141' err
    grep -qx x err
    ditto 0 verify y.ditto
}

@test "--keep failed keeps what failed, and nothing else" {
    long
    need_kernel
    ditto 0 run -r --keep failed -o k.ditto --kernel "$kernel" --root "$root" -- true
    nothing_written
    ditto 1 run -r --keep failed -o k.ditto --kernel "$kernel" --root "$root" -- false
    [[ $stderr == *'the command failed; recorded in k.ditto'* ]]
    ditto 0 verify k.ditto
}

@test "a machine that ends before its command: status 124, with the console's end" {
    long
    need_kernel
    ditto 124 run -o p.ditto --kernel "$kernel" --root "$root" -- sh -c 'echo c >/proc/sysrq-trigger; sleep 60'
    [[ $stderr == *'Kernel panic - not syncing: sysrq triggered crash'* ]]
    [[ $(tail -n 1 <<<"$stderr") == 'dittovm: the machine ended before the command did: the machine was reset'* ]]
    ditto 0 info p.ditto
    [[ $output == *'ended         '*reset* ]]
    # A kernel without its modules finds no disk.
    mkdir alone && cp "$kernel" alone
    ditto 124 run --kernel alone/vmlinuz --root "$root" -- true
    one_error 'no driver for its root disk'
}

@test "a command gets the user's terminal, and Ctrl-C is for it" {
    long
    need_kernel
    run bounded 120 python3 "$BATS_TEST_DIRNAME/command_terminal.py" "$DITTO" run --record --quiet -o t.ditto \
        --kernel "$kernel" --root "$root" -- sh
    echo "$output"
    [ "$status" = 9 ]
    [[ $output == *'/dev/pts/0'* && $output == *'33 99'* ]]
    ditto 0 verify t.ditto
}

@test "the script of docs/command.md finds the kernel with which a test began to fail" {
    need_kernel
    sed -n '/^#!\/bin\/sh/,/^```/p' "$tree/docs/command.md" | grep -v '^```' >bisect.sh
    [ "$(wc -l <bisect.sh)" -gt 3 ] && [ "$(wc -l <bisect.sh)" -le 10 ]
    git init -q tree
    cd tree
    git config user.email test && git config user.name test
    # The kernel is always the same, but a file of the tree goes with it.
    printf 'olddefconfig:\nbzImage:\n\tmkdir -p arch/x86/boot && ln -sf %s arch/x86/boot/ && cp state %s/state\n' \
        "$kernel" "$root" | sed 's#boot/ &&#boot/bzImage \&\&#' >Makefile
    echo good >state
    git add . && git commit -qm 0
    for i in 1 2 3; do
        [ $i != 2 ] || echo bad >state
        echo "$i" >count
        git add . && git commit -qm "$i"
    done
    printf '#!/bin/sh\n[ "$(cat /state)" = "$1" ]\n' >"$root/test.sh"
    chmod +x "$root/test.sh"
    git bisect start HEAD HEAD~3
    PATH=$(dirname "$DITTO"):$PATH ROOT=$root MODULES=$BATS_FILE_TMPDIR bounded 300 \
        git bisect run sh ../bisect.sh /test.sh good </dev/null
    [ "$(git log -1 --format=%s refs/bisect/bad)" = 2 ]
    run -0 ls # the recording of the bad one that was tried
    [[ $output == *"bad-$(git rev-parse --short refs/bisect/bad).ditto"* ]]
}

@test "what cannot be run is one line, with the status that shells have for it" {
    need_kernel
    ditto 127 run --kernel "$kernel" --root "$root" -- nosuch
    one_error "there is no command nosuch in $root"
    ditto 126 run --kernel "$kernel" --root "$root" -- /etc/text
    one_error 'it is no executable file'
    ditto 125 run --kernel "$root/etc/text" --root "$root" -- true
    one_error 'not a Linux kernel'
    ditto 125 run --kernel "$kernel" --root "$root/etc/text" -- true
    one_error 'Not a directory'
    ditto 125 run --kernel "$kernel" --root "$root" --modules "$root" -- true
    one_error 'has no modules of Linux'
    ditto 125 run --root "$root" --keep sometimes -- true
    one_error 'takes always or failed'
    ditto 125 run --root "$root" --initrd "$kernel" --kernel "$kernel" -- true
    one_error 'makes no sense with --root'
    ditto 2 run --kernel "$kernel" --root "$root"
    one_error 'wants a command behind --'
    ditto 2 run --kernel "$kernel" --keep failed
    one_error 'goes with --root'
    nothing_written
    # Modules that lack one.
    mkdir -p some/lib/modules
    cp -r "$BATS_FILE_TMPDIR"/lib/modules/* some/lib/modules/
    rm -f some/lib/modules/*/modules.dep
    sed -i '/virtio_blk/d' some/lib/modules/*/modules.order
    ditto 125 run --kernel "$kernel" --root "$root" --modules some -- true
    one_error 'have no virtio_blk'
}
