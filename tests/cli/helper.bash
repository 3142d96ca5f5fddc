# Loaded by every file here. $tree: the source tree; the current directory is the test's own.
bats_require_minimum_version 1.5.0
tree=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
. "$tree/tests/lib/common.sh"
SHARED=$BATS_SUITE_TMPDIR
HELLO_ELF=$BUILD/guests/hello.elf

setup() {
    # Not the test's directory itself: bats keeps files of its own there.
    mkdir "$BATS_TEST_TMPDIR/work" && cd "$BATS_TEST_TMPDIR/work" || return 1
}

# A failed test's recordings are kept, and those of its file.
teardown() {
    [ -z "${BATS_TEST_COMPLETED:-}" ] || return 0
    local recording
    for recording in "$BATS_TEST_TMPDIR"/work/*.ditto "$BATS_FILE_TMPDIR"/*.ditto; do
        keep_failed "$recording" \
            "$(basename "$BATS_TEST_FILENAME" .bats)-$BATS_TEST_NUMBER-$(basename "$recording" .ditto)"
    done
}

# in_server ARGUMENT...: such a dittovm needs a host, and the one that setup_suite has started will do.
in_server() {
    [[ -n ${DITTO_SERVER:-} && ${1:-} =~ ^(run|replay|verify|snapshot|disk|core)$ ]] &&
        [[ " $* " != *' --host'* && " $* " != *' --gdb'* && " $* " != *' --net'* && " $* " != *' --domain'* ]]
}

# ditto_to SECONDS OUT ERR ARGUMENT...: dittovm, with its output in two files; as ditto_bounded.
ditto_to() {
    if in_server "${@:4}"; then
        ditto_bounded "$@"
    else
        DITTO_SERVER='' ditto_bounded "$@"
    fi
}

# ditto STATUS ARGUMENT...: runs dittovm and expects this exit status; its output is in $output and
# $stderr.
ditto() {
    local status_wanted=$1 said=$BATS_TEST_TMPDIR
    shift
    status=0
    ditto_to "${seconds:-120}" "$said/out" "$said/err" "$@" || status=$?
    output=$(<"$said/out") stderr=$(<"$said/err")
    [ "$status" = "$status_wanted" ] || {
        echo "dittovm $*: exit status $status, not $status_wanted"
        echo "$output"
        echo "$stderr"
        return 1
    }
}

# one_error TEXT: stderr is a single error that holds the text; the lines that tell of the emulated
# host and of its CPU are none.
one_error() {
    local lines
    lines=$(grep -v 'running in the emulated KVM host\|this emulated CPU \(loses the flags\|notices a\)' <<<"$stderr")
    [ "$(wc -l <<<"$lines")" = 1 ] && grep -q "^dittovm: .*$1" <<<"$lines" || {
        echo "expected one error with '$1', got:"
        echo "$stderr"
        return 1
    }
}

# wait_until SECONDS COMMAND...: until the command succeeds; by $PATIENCE.
wait_until() {
    local left=$(($1 * PATIENCE * 10))
    shift
    until "$@"; do
        [ $left -gt 0 ] || return 1
        left=$((left - 1))
        sleep 0.1
    done
}

# until_said SECONDS FILE PATTERN: the file has such a line by then.
until_said() {
    wait_until "$1" grep -aqs "$3" "$2" || {
        echo "no '$3' in $2:"
        tail -n 20 "$2"*
        return 1
    }
}

# stopped_by_user FILE: the dittovm in the background, $pid, is told to end and does; its messages are in FILE.
stopped_by_user() {
    kill -TERM "$pid"
    status=0
    wait "$pid" || status=$?
    cat "$1"
    [ "$status" = 0 ]
}

# nothing_written: no file is here beyond those named.
nothing_written() {
    local left
    left=$(find . -type f | sort | grep -vxF "$(printf './%s\n' "$@")" || true)
    [ -z "$left" ] || {
        echo "left behind: $left"
        return 1
    }
}

# need_recording: of the small image's hello, from an image of its own that is deleted afterwards; once for all
# suites and each new dittovm. In $HELLO: recorded/hello.ditto, run.out, run.err, image.before and image.after.
HELLO=$BUILD/tests/hello
need_recording() {
    mkdir -p "$HELLO"
    (
        flock 9
        cd "$HELLO" || exit
        [ recorded/hello.ditto -nt "$DITTO" ] && [ recorded/hello.ditto -nt "$IMAGE" ] && exit
        rm -rf recorded
        mkdir recorded
        cp --sparse=always "$IMAGE" hello.img
        sha256sum hello.img >image.before
        (
            cd recorded
            bounded 300 "$DITTO" run --record --json --append ditto.script=hello ../hello.img \
                </dev/null >../run.out 2>../run.err 9>&-
        ) || rm -f recorded/hello.ditto
        sha256sum hello.img >image.after
        rm hello.img
    ) 9>"$HELLO.lock"
    [ -e "$HELLO/recorded/hello.ditto" ] || {
        echo "the recording of hello failed:"
        cat "$HELLO/run.err"
        return 1
    }
}

# linux_recording: sets $linux to one of Linux; its summary is in $linux_err. The small image's shell says hello. It
# begins where that has booted; with LONG=1, where it boots. Made once a file.
linux_recording() {
    if [ -n "${LONG:-}" ]; then
        need_recording
        linux=$HELLO/recorded/hello.ditto linux_err=$HELLO/run.err
        return
    fi
    local at=$BATS_FILE_TMPDIR/linux
    linux=$at.ditto linux_err=$at.err
    [ ! -e "$linux" ] || return 0
    booted
    typed hello '' >keys
    DITTO_IN=$PWD/keys ditto_to 120 linux.out linux.err run --json -o linux.ditto --from "$booted"
    mv linux.err "$linux_err"
    mv linux.ditto "$linux"
}

# long: first of all in a test that takes minutes and has a brief one beside it.
long() {
    [ -n "${LONG:-}" ] || skip 'takes minutes: make check-all'
}

# small_recording NAME: a complete recording of a bare-metal guest, a few KiB.
small_recording() {
    cp "$SHARED/small.ditto" "$1"
}

# file_on IMAGE NAME: a file of a small image's file system, what its journal holds included, in which there is no error.
file_on() {
    dd if="$1" of=partition bs=1M skip=1 conv=sparse status=none || return
    e2fsck -fp partition >fsck.out 2>&1 || [ $? = 1 ] || { cat fsck.out >&2; return 1; }
    debugfs -R "cat $2" partition 2>/dev/null
    rm partition fsck.out
}

# crc32_le: CRC-32 of stdin as 4 little-endian bytes; gzip's trailer holds it.
crc32_le() {
    gzip -c | tail -c 8 | head -c 4
}

# await_gdb_server: one was started just now in the background, with its messages in serve.err; its
# address for "target remote" is in $address.
await_gdb_server() {
    server=$!
    for _ in $(seq 900); do
        [ -e serve.err ] || { sleep 0.1 && continue; } # its shell has not made it yet
        address=$(sed -n 's/^dittovm: waiting for gdb: target remote //p' serve.err)
        [ -z "$address" ] || return 0
        sleep 0.1
    done
    cat serve.err
    return 1
}

# in_gdb SECONDS FILE COMMAND...: in a gdb on FILE ('' for none) that is attached to $address; the
# output is in $output.
in_gdb() {
    local seconds=$1 file=$2 command
    local arguments=(-ex "target remote $address")
    shift 2
    for command; do
        arguments+=(-ex "$command")
    done
    run bounded "$seconds" gdb -nx -batch ${file:+"$file"} "${arguments[@]}" </dev/null
    echo "$output"
}
