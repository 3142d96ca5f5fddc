# Runs once before all files here: what several of them use.
setup_suite() {
    tree=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
    . "$tree/tests/lib/common.sh"
    # One host for the many runs whose subject is not how it starts (in_server() of helper.bash).
    cd "$BATS_RUN_TMPDIR" && ditto_start || return 1
    cd "$BATS_SUITE_TMPDIR" || return 1
    bounded 60 "$DITTO" run --quiet -o small.ditto --memory 32M --kernel "$BUILD/guests/hello.elf" \
        </dev/null >small.out 2>small.err || cat small.err >&2
}

teardown_suite() {
    ditto_stop
}
