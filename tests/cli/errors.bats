# What a user can do wrong: one line that says so, the right exit status, and nothing written.
load helper

@test "files that do not exist" {
    for file in disk kernel initrd; do
        case $file in
        disk) ditto 1 run --record nosuch.img ;;
        kernel) ditto 1 run -o out.ditto --kernel nosuch ;;
        initrd) ditto 1 run -o out.ditto --kernel "$HELLO_ELF" --initrd nosuch ;;
        esac
        one_error 'cannot open nosuch.*No such file'
    done
    for command in replay verify snapshot info dump order; do
        ditto 1 $command nosuch.ditto
        one_error 'nosuch.ditto.*No such file'
    done
    nothing_written
}

@test "an image without a file system, and one without a kernel" {
    unset DITTO_SERVER # images are looked into before a host is started
    truncate -s 1M blank.img
    ditto 1 run --record blank.img
    one_error 'blank.img has neither a partition table nor a file system'
    truncate -s 4M empty.img
    PATH=$PATH:/sbin:/usr/sbin mke2fs -q -F -t ext4 empty.img
    ditto 1 run --record empty.img
    one_error 'empty.img'
    printf 'XFSB' >xfs.img
    truncate -s 1M xfs.img
    ditto 1 run --record xfs.img
    one_error 'no Linux kernel found in xfs.img: it has no file system that can be read (XFS)'
    # Without the tool that reads others.
    mkdir few
    status=0
    PATH=$PWD/few "$DITTO" run --record xfs.img 2>said || status=$?
    [ $status = 1 ]
    stderr=$(<said)
    rm said
    one_error "no Linux kernel found in xfs.img (XFS): grub-fstest is not installed; run 'apt-get install grub-common'"
    # No host is started for that.
    for image in blank empty xfs; do
        ditto 1 --host emulated run --record $image.img
        [ "$(wc -l <<<"$stderr")" = 1 ]
    done
    nothing_written blank.img empty.img xfs.img
}

@test "text of others is shown, and not obeyed by the terminal" {
    mkdir -p root/boot/grub
    cp "$HELLO_ELF" root/boot/$'vmlinuz\033[31m'
    printf 'menuentry x {\n linux /boot/vmlinuz\033[31m a\033]0owned\007b\302\2332Jc\n}\n' \
        >root/boot/grub/grub.cfg
    truncate -s 4M evil.img
    PATH=$PATH:/sbin:/usr/sbin mke2fs -q -F -t ext2 -d root evil.img
    ditto 0 run --record evil.img
    ditto 0 info evil.ditto
    [[ $output == *'booted '*', /boot/vmlinuz?[31m'*'command line  a?]0owned?b??2Jc '* ]]
    [[ $output != *[$'\033\a\302']* ]]
    ditto 0 info --json evil.ditto
    [[ $output == *'a\u001B]0owned\u0007b\u009B2Jc '* ]]
    ditto 1 replay $'nosuch\033[31m.ditto'
    one_error 'cannot open nosuch?\[31m.ditto'
}

@test "a kernel that is none" {
    head -c 100000 /dev/urandom >noise
    ditto 1 run -o out.ditto --kernel noise
    one_error 'kernel'
    nothing_written noise
}

@test "too little memory for the kernel" {
    ditto 1 run -o out.ditto --memory 16M "$IMAGE"
    one_error 'give --memory'
    nothing_written
}

@test "a place for the recording that does not exist" {
    ditto 1 run -o nosuch/out.ditto --kernel "$HELLO_ELF"
    one_error 'nosuch/out.ditto'
    nothing_written
}

@test "an existing recording is not overwritten without --force" {
    small_recording out.ditto
    cp out.ditto before
    ditto 1 run -o out.ditto --kernel "$HELLO_ELF"
    one_error 'out.ditto exists; give --force'
    cmp out.ditto before
    nothing_written out.ditto before
}

@test "--force overwrites a recording, and nothing else" {
    small_recording out.ditto
    cp out.ditto before
    ditto 0 run --quiet --force -o out.ditto --kernel "$HELLO_ELF"
    ! cmp -s out.ditto before
    ditto 0 info out.ditto
    echo precious >letter
    ditto 1 run --force -o letter --kernel "$HELLO_ELF"
    one_error 'letter'
    [ "$(cat letter)" = precious ]
    nothing_written out.ditto before letter
}

@test "what cannot be shown" {
    local command
    for command in info dump 'info --json'; do
        # shellcheck disable=SC2086 # words
        run bounded 60 bash -c '"$0" $2 "$1" >/dev/full' "$DITTO" "$SHARED/small.ditto" "$command"
        [ "$status" = 1 ]
        [[ $output == 'dittovm: cannot write to standard output: No space left on device' ]]
    done
    # Who has seen enough wants no message.
    run bounded 60 bash -c '"$0" dump "$1" | head -n 1' "$DITTO" "$SHARED/small.ditto"
    [ "$(wc -l <<<"$output")" = 1 ]
}

@test "the recording has a default name" {
    ditto 0 run --quiet --record --memory 32M --kernel "$HELLO_ELF"
    [ -f hello.ditto ]
    nothing_written hello.ditto
}

@test "no permission on /dev/kvm" {
    [ -e /dev/kvm ] || skip "there is no /dev/kvm"
    [ "$(id -u)" = 0 ] || skip "only root can become another user"
    [ -z "$(find /dev/kvm -perm /006)" ] || skip "everybody may use /dev/kvm"
    # Where other users can reach it.
    open=$(mktemp -d /tmp/ditto-test-XXXXXX)
    chmod 755 "$open"
    cp "$DITTO" "$open/dittovm" && cp "$HELLO_ELF" "$open/kernel" && chmod 755 "$open"/*
    run --separate-stderr setpriv --reuid 65534 --regid 65534 --clear-groups \
        "$open/dittovm" --host native run --kernel "$open/kernel"
    rm -r "$open"
    [ "$status" = 1 ]
    one_error '/dev/kvm'
}

@test "without the emulated host's files" {
    mkdir empty
    DITTO_DATADIR=$PWD/empty run --separate-stderr "$DITTO" --host emulated run --kernel "$HELLO_ELF"
    [ "$status" = 1 ]
    one_error "run 'make khost'"
    DITTO_DATADIR=$PWD/empty run --separate-stderr "$DITTO" --host vmx run --kernel "$HELLO_ELF"
    [ "$status" = 1 ]
    one_error "run 'make khost-vmx'"
}

# qemu_when CASES: a QEMU that writes its arguments to ./starts and does what the cases of shell say before it starts
# the real one. It is the same file for all tests here, and so saved hosts are good for all of them.
qemu_when() {
    local file=$BATS_FILE_TMPDIR built=${DITTO_DATADIR:-$BUILD/khost} real
    [ -e "$file/data" ] || {
        real=$built/qemu-system-x86_64
        [ -x "$real" ] || real=$(command -v qemu-system-x86_64) || skip 'no qemu-system-x86_64'
        mkdir "$file/fake" "$file/data"
        ln -s "$built"/khost-* "$file/data"
        printf '#!/bin/sh\necho "$*" >>starts\nwhen() {\n. %s/when\n}\nwhen "$@"\nexec %s "$@"\n' "$file" "$real" \
            >"$file/fake/qemu-system-x86_64"
        chmod +x "$file/fake/qemu-system-x86_64"
    }
    printf 'case $* in\n%s\nesac\n' "$1" >"$file/when"
    export PATH=$file/fake:$PATH DITTO_DATADIR=$file/data
}

# saved_host: one is in ./cache, from the test that saves it or made here.
saved_host() {
    [ -e "$BATS_FILE_TMPDIR/cache" ] || {
        qemu_when 'no) ;;'
        XDG_CACHE_HOME=$PWD/new inside true
        mv new "$BATS_FILE_TMPDIR/cache"
    }
    rm -f starts
    cp -rp "$BATS_FILE_TMPDIR/cache" cache
    export XDG_CACHE_HOME=$PWD/cache
}

# inside COMMAND...: in the emulated host, as dittovm starts it.
inside() {
    bounded_tool 120 "$TOOLS/in_host" "$@" </dev/null 2>>err
}

@test "an emulated KVM host is started once and saved; what is random differs, and its clock is ours" {
    export XDG_CACHE_HOME=$PWD/cache
    mkdir cache
    qemu_when 'no) ;;'
    inside true & # the second of two does not wait for the first, and does not do the same
    inside true
    wait $!
    [ -z "$(find cache -name '*.vain')" ] && ! grep -q 'starting it again' err ||
        skip 'a host takes more than 30 s to start here'
    [ "$(grep -c -- '-mon chardev=monitor' starts)" = 1 ]
    [ "$(wc -l <starts)" = 3 ]
    [ "$(find cache -type f | wc -l)" = 1 ]
    cp -rp cache "$BATS_FILE_TMPDIR/cache"
    inside cat /proc/sys/kernel/random/uuid >one
    inside cat /proc/sys/kernel/random/uuid >other
    [ "$(sort -u one other | wc -l)" = 2 ]
    before=$EPOCHSECONDS
    seconds=$(inside date +%s)
    [ "$seconds" -ge "$before" ] && [ "$seconds" -le "$EPOCHSECONDS" ]
    [ "$(wc -l <starts)" = 6 ]
    [ "$(tail -n 3 starts | grep -c -- '-incoming exec')" = 3 ]
}

@test "an emulated KVM host that stands still on its way up is started again" {
    saved_host
    qemu_when '*-incoming*) exec sleep 1000 ;;'
    [ "$(inside echo up)" = up ]
    grep -q 'did not start within 30 s.*starting it again' err
}

@test "all output of a command in the emulated KVM host comes, however late it is read" {
    # More than lies between here and the command, and later than the host was once given to end.
    [ "$(inside head -c 5000000 /dev/zero | { sleep 12 && wc -c; })" = 5000000 ]
}

@test "a saved emulated KVM host that cannot be used, and a QEMU that cannot save" {
    saved_host
    qemu_when 'no) ;;'
    for file in cache/dittovm/host-*; do
        truncate -s 1000000 "$file"
    done
    [ "$(inside echo one)" = one ]
    grep -q 'ended unexpectedly: .*; starting it again' err
    # There is none for a while.
    [ ! -e "$file" ] && [ -e "$file.vain" ]
    rm cache/dittovm/*
    : >starts
    qemu_when '*chardev=monitor*) exit 1 ;;'
    [ "$(inside echo two)" = two ]
    [ "$(wc -l <starts)" = 2 ]
    [ "$(inside echo three)" = three ]
    [ "$(wc -l <starts)" = 3 ]
    [ "$(find cache -name 'host-*' ! -name '*.vain' | wc -l)" = 0 ]
}

@test "a saved emulated KVM host of somebody else is not used" {
    [ "$(id -u)" = 0 ] || skip 'only root can give files away'
    export XDG_CACHE_HOME=$PWD/cache
    mkdir -p cache/dittovm
    chmod 777 cache/dittovm
    qemu_when 'no) ;;'
    [ "$(inside echo one)" = one ]
    [ "$(find cache -type f | wc -l)" = 0 ]
}

@test "a clock that the emulated host does not have" {
    ditto 1 run --host emulated -o out.ditto --kernel "$HELLO_ELF" --clock pmu
    one_error 'no pmu clock on this host: .*; use --clock landmark, or --clock auto'
    ditto 1 verify --host emulated --clock pmu "$SHARED/small.ditto"
    one_error 'made without counting branches'
    ditto 2 run --clock sundial "$IMAGE"
    one_error 'sundial'
    nothing_written
}
