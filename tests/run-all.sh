#!/bin/bash
# Runs test suites and adds them up: run-all.sh [-j WORKERS] SUITE..., of rooms, unit, asan, tsan, step, oracle,
# breakpoints, guests (bare-metal ones; guests/K/N: each N-th of them from the K-th on), linux-guests,
# asan-guests (a bare-metal one of each kind, with LONG=1 all of them, recorded and replayed by a build with
# sanitizers), litmus, litmus-crew, cli/FILE[,FILE...] (tests/cli/FILE.bats), and cli (those of tests/cli that are not named).
# Each of the workers (default 1) takes the next one when it is done with one: name the long ones first. Every runner
# speaks TAP; failures are shown in full, and the last line is 'N passed, N failed, N skipped'.
set -u
tree=$(cd "$(dirname "$0")/.." && pwd)
. "$tree/tests/lib/common.sh"
cd "$tree" || exit 1
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT
passed=0 failed=0 skipped=0

# add_up NAME STATUS OUT ERR: counts a runner's tests and shows what failed, with its messages.
add_up() {
    local name=$1 status=$2 out=$3 ok bad skip planned missing
    skip=$(grep -ciE '^ok .*# skip|^not ok [0-9]+ # SKIP' "$out")
    ok=$(($(grep -c '^ok ' "$out") - $(grep -ciE '^ok .*# skip' "$out")))
    bad=$(($(grep -c '^not ok ' "$out") - $(grep -c '^not ok [0-9]* # SKIP' "$out")))
    planned=$(sed -n 's/^1\.\.\([0-9]*\).*/\1/p' "$out" | head -n 1)
    missing=$((${planned:-1} - ok - bad - skip))
    [ "$missing" -ge 0 ] || missing=0
    # A runner that failed without a failed test: it crashed, or its set-up did.
    [ "$status" = 0 ] || [ $((bad + missing)) -gt 0 ] || missing=1
    passed=$((passed + ok)) failed=$((failed + bad + missing)) skipped=$((skipped + skip))
    printf '%-28s %3d passed, %d failed, %d skipped\n' "$name" "$ok" $((bad + missing)) "$skip"
    grep -iE '^ok .*# skip|^not ok [0-9]+ # SKIP' "$out" | sed 's/^/    /'
    if [ $((bad + missing)) -gt 0 ]; then
        [ "$missing" = 0 ] || echo "    $missing tests did not run; exit status $status"
        # From each failed test to the next one that is none.
        awk '/^ok |^not ok [0-9]+ # SKIP/ { show = 0 } /^not ok / && !/# SKIP/ { show = 1 }
             show { print "    " $0 }' "$out"
        sed 's/^/    /' "$4" | tail -n 60
    fi
}

# slow_tests OUT: those that took $SLOW seconds (default 30) or longer, as far as the runner says how long.
slow_tests() {
    awk -v slow="${SLOW:-30}" '/^ok / {
        seconds = 0
        if (match($0, /in [0-9]+ms$/))
            seconds = substr($0, RSTART + 3) / 1000
        else if (match($0, /# [0-9.]+ s, replayed in [0-9.]+ s$/)) {
            split(substr($0, RSTART + 2), part, " s, replayed in ")
            seconds = part[1] + part[2]
        }
        if (seconds >= slow) {
            sub(/^ok [0-9]+ /, "")
            sub(/( # .*| in [0-9]+ms)$/, "")
            printf "    %4d s  %s\n", seconds, $0
        }
    }' "$1"
}

# need_build DIRECTORY TARGET: without its server the runs in there would be those of the plain build.
need_build() {
    [ -x "$1/tools/ditto_server" ] && return
    echo "run-all: there is no $1; make $2" >&2
    failed=$((failed + 1))
    return 1
}

# run NAME SECONDS COMMAND...
run() {
    local name=$1 seconds=$2 status
    shift 2
    bounded "$seconds" "$@" >"$log/out" 2>"$log/err" </dev/null
    status=$?
    {
        add_up "$name" $status "$log/out" "$log/err"
        slow_tests "$log/out"
    } >"$log/report"
    cat "$log/report" # at once, whatever runs beside
}

# All rounds of random tests, with sanitizers, take a minute of CPU for one program.
run_unit() {
    local program seconds=120
    [ -z "${LONG:-}" ] || seconds=900
    for program in "$1"/unit/test_*; do
        [ -x "$program" ] && [ ! -d "$program" ] || continue
        case $program in *.d | *.o) continue ;; esac
        run "$2$(basename "$program")" "$seconds" env CMOCKA_MESSAGE_OUTPUT=TAP "$program"
    done
}

# Unit tests that look into a real kernel take the disk image's, if there is one.
if [ -z "${DITTO_TEST_VMLINUZ:-}" ] && [ -e "$IMAGE" ] && image_file '^vmlinuz-' "$log/vmlinuz"; then
    export DITTO_TEST_VMLINUZ=$log/vmlinuz
fi
run_suite() {
    local suite=$1
    case $suite in
    rooms) run rooms 120 tests/rooms.sh ;;
    unit) run_unit "$BUILD" '' ;;
    asan) run_unit build-asan 'asan ' ;;
    # The first report ends it.
    tsan)
        need_build build-tsan tsan || return
        run_unit build-tsan 'tsan '
        run 'tsan golden' 300 env TOOLS="$tree/build-tsan/tools" TSAN_OPTIONS=halt_on_error=1 \
            bats --tap --timing -f 'recordings of each format' tests/cli/replay.bats
        ;;
    step) run 'step oracle' 300 env DITTO_DATADIR="$BUILD/khost" "$BUILD/tools/step_oracle" 100 ;;
    oracle) run oracle 900 tests/oracle.sh ;;
    breakpoints)
        run breakpoints 120 env DITTO_DATADIR="$BUILD/khost" "$BUILD/tools/breakpoints"
        run 'breakpoint ends' 120 env DITTO_DATADIR="$BUILD/khost" "$BUILD/tools/breakpoint_ends"
        run 'breakpoints native' 60 "$BUILD/tools/breakpoints" native
        ;;
    cli | cli/*)
        local -a files
        read -ra files <<<"${suite//[\/,]/ }"
        [ "$suite" = cli ] && files=("${cli[@]}") || files=("${files[@]:1}")
        files=("${files[@]/#/tests/cli/}")
        run "$suite" 3600 bats --tap --timing "${files[@]/%/.bats}"
        ;;
    guests | guests/*)
        local part=${suite#guests}
        run "$suite" 3600 env OF=file PART="${part#/}" tests/guests/run.sh
        ;;
    linux-guests) run 'Linux guests' 3600 env OF=script tests/guests/run.sh ;;
    # Not leaks: it would stop what it looks into.
    asan-guests)
        local of=asan
        need_build "$ASAN_BUILD" asan || return
        [ -z "${LONG:-}" ] || of='file'
        run 'asan guests' 3600 env PATIENCE=$((3 * PATIENCE)) OF=$of TOOLS="$ASAN_BUILD/tools" ASAN_OPTIONS=detect_leaks=0 tests/guests/run.sh
        ;;
    litmus) run litmus 900 env BRIEF=1 tests/litmus.sh --tap 1 ;;
    litmus-crew) run 'litmus crew' 900 env BRIEF=1 SMP=crew LEVEL=0 tests/litmus.sh --tap 1 ;;
    *)
        echo "run-all: no suite '$suite' (see the head of this file)" >&2
        failed=$((failed + 1))
        ;;
    esac
}

# next_suite: sets $suite to one that no worker has taken; false when there is none.
next_suite() {
    local at
    exec 9<>"$queue"
    flock 9
    at=$(<"$queue")
    echo $((at + 1)) >"$queue"
    exec 9>&-
    [ "$at" -lt ${#suites[@]} ] && suite=${suites[at]}
}

# work DIRECTORY: in the background; what it comes to is in DIRECTORY/sum.
work() {
    local suite began
    log=$1
    mkdir "$log"
    while next_suite; do
        began=$SECONDS
        run_suite "$suite"
        echo "    $suite took $((SECONDS - began)) s"
    done
    echo "$passed $failed $skipped" >"$log/sum"
}

workers=1
if [ "${1:-}" = -j ]; then
    workers=$2
    shift 2
fi
suites=("$@")
cli=()
for file in tests/cli/*.bats; do
    name=${file:10:-5}
    [[ $* =~ (/|,)$name(,| |$) ]] || cli+=("$name")
done
start=$SECONDS queue=$log/next
echo 0 >"$queue"
for number in $(seq "$workers"); do
    work "$log/$number" &
done
wait
for number in $(seq "$workers"); do
    ok=0 bad=1 skip=0 # if it came to no end
    read -r ok bad skip <"$log/$number/sum"
    passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + skip))
done
echo "took $((SECONDS - start)) s"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
