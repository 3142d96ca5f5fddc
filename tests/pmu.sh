#!/bin/bash
# pmu.sh: the pmu clock on hardware. Runs its self-test by way of doctor; then records bare guests with
# the pmu and the landmark clock and verifies each recording with both, where that is possible. One
# line each, and the totals last. On a machine without a branch counter for guests it is skipped.
set -u
tree=$(cd "$(dirname "$0")/.." && pwd)
. "$tree/tests/lib/common.sh"
guests=(count count-user count-memory)
limit=${SECONDS_MAX:-300}
passed=0 failed=0

# tell WHAT SECONDS VERDICT: one line of the table; any verdict but 'ok' is a failure.
tell() {
    printf '%-14s  %-24s  %8s  %s\n' "$guest" "$1" "$2" "$3"
    if [ "$3" = ok ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
}

finish() {
    echo "$passed passed, $failed failed, ${1:-0} skipped"
    [ $failed = 0 ]
    exit
}

line=$("$DITTO" doctor --host native </dev/null | sed -n 's/^branch counter for guests  *//p')
result=${line%% *}
detail=$(sed 's/^[a-z]*  *//; s/ -> .*//' <<<"$line")
if [ "$result" = missing ]; then
    echo "SKIP: $detail"
    finish 1
fi
guest=self-test
tell doctor - "${result:-no such probe}"
echo "$detail"
[ "$result" = ok ] || finish

work=$(mktemp -d "$BUILD/pmu-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

# verify CLOCK WITH: the recording in run.ditto, made with CLOCK, verified WITH another or the same.
verify() {
    local verdict=ok status
    bounded "$limit" "$DITTO" verify --host native --json --clock "$2" run.ditto \
        >verify.out 2>verify.err </dev/null
    status=$?
    [ $status = 0 ] && [ "$(json_field result verify.out)" = identical ] ||
        verdict="status $status: $(tail -n 1 verify.err)"
    tell "$1, verified with $2" "$(json_field seconds verify.out)" "$verdict"
    [ "$verdict" = ok ] || keep_failed run.ditto "pmu-$guest-$1-$2"
}

printf '%-14s  %-24s  %8s\n' guest clock seconds
for guest in "${guests[@]}"; do
    for clock in pmu landmark; do
        bounded "$limit" "$DITTO" run --host native --json -f -o run.ditto --memory 32M --clock $clock \
            --kernel "$BUILD/guests/$guest.elf" >run.out 2>run.err </dev/null
        status=$?
        if [ $status != 0 ]; then
            tell $clock - "status $status: $(tail -n 1 run.err)"
            continue
        fi
        tell $clock "$(json_field seconds run.err)" ok
        verify $clock landmark
        # A recording of the landmark clock has no counts to land by.
        [ $clock = landmark ] || verify $clock pmu
    done
done
finish
