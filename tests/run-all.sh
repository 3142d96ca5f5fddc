#!/bin/bash
# Runs test suites and adds them up: run-all.sh SUITE... [-- SUITE...], of unit, asan, step, oracle,
# breakpoints, guests, litmus, litmus-crew, cli/FILE (tests/cli/FILE.bats), and cli (those of tests/cli that
# are not named); those behind a `--` run beside those before it. Every runner speaks TAP; failures are shown
# in full, and the last line is 'N passed, N failed, N skipped'.
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

# run NAME SECONDS COMMAND...
run() {
    local name=$1 seconds=$2 status
    shift 2
    bounded "$seconds" "$@" >"$log/out" 2>"$log/err" </dev/null
    status=$?
    add_up "$name" $status "$log/out" "$log/err" >"$log/report"
    cat "$log/report" # at once, whatever runs beside
}

run_unit() {
    local program
    for program in "$1"/unit/test_*; do
        [ -x "$program" ] && [ ! -d "$program" ] || continue
        case $program in *.d | *.o) continue ;; esac
        run "$2$(basename "$program")" 120 env CMOCKA_MESSAGE_OUTPUT=TAP "$program"
    done
}

# Unit tests that look into a real kernel take the disk image's, if there is one.
if [ -z "${DITTO_TEST_VMLINUZ:-}" ] && [ -e "$IMAGE" ] && image_file '^vmlinuz-' "$log/vmlinuz"; then
    export DITTO_TEST_VMLINUZ=$log/vmlinuz
fi
run_suites() {
    local suite
    for suite; do
        case $suite in
        unit) run_unit "$BUILD" '' ;;
        asan) run_unit build-asan 'asan ' ;;
        step) run 'step oracle' 300 env DITTO_DATADIR="$BUILD/khost" "$BUILD/tools/step_oracle" 100 ;;
        oracle) run oracle 900 tests/oracle.sh ;;
        breakpoints)
            run breakpoints 120 env DITTO_DATADIR="$BUILD/khost" "$BUILD/tools/breakpoints"
            run 'breakpoints native' 60 "$BUILD/tools/breakpoints" native
            ;;
        cli/*) run "$suite" 2400 bats --tap --timing "tests/$suite.bats" ;;
        cli) run cli 4200 bats --tap --timing "${cli[@]}" ;;
        guests) run guests 3600 tests/guests/run.sh ;;
        litmus) run litmus 900 env BRIEF=1 tests/litmus.sh --tap 1 ;;
        litmus-crew) run 'litmus crew' 900 env BRIEF=1 SMP=crew LEVEL=0 tests/litmus.sh --tap 1 ;;
        *)
            echo "run-all: no suite '$suite' (see the head of this file)" >&2
            failed=$((failed + 1))
            ;;
        esac
    done
}

# run_group DIRECTORY SUITE...: what they come to is in DIRECTORY/sum; for the background.
run_group() {
    log=$1
    shift
    run_suites "$@"
    echo "$passed $failed $skipped" >"$log/sum"
}

cli=()
for file in tests/cli/*.bats; do
    [[ " $* " == *" ${file:6:-5} "* ]] || cli+=("$file")
done
start=$SECONDS groups=0
group=()
for suite in "$@" --; do
    if [ "$suite" != -- ]; then
        group+=("$suite")
    elif [ ${#group[@]} -gt 0 ]; then
        groups=$((groups + 1))
        mkdir "$log/$groups"
        run_group "$log/$groups" "${group[@]}" &
        group=()
    fi
done
wait
for number in $(seq "$groups"); do
    ok=0 bad=1 skip=0 # if it came to no end
    read -r ok bad skip <"$log/$number/sum"
    passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + skip))
done
echo "took $((SECONDS - start)) s"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
