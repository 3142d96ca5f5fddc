#!/bin/bash
# run.sh [GUEST...]: records and replays the guests of list.cfg, or those named; with OF=SETTING (file, script, asan)
# those that have it, with PART=K/N each N-th of them from the K-th on.
# Writes TAP. All of them run in one emulated host, where one is needed.
set -u
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$tree/tests/lib/common.sh"

# why_not: the reason why the run that was just made and replayed is not as it should be, or nothing.
why_not() {
    if [ -n "$error" ]; then
        [ "$recorded" = 1 ] || { echo "recording: exit status $recorded, not 1" && return; }
        grep -qE "^dittovm: .*$error" run.err || { echo "no error '$error'" && return; }
    else
        [ "$recorded" = 0 ] || { echo "recording: exit status $recorded" && return; }
        [ "$(json_field end run.err)" = "$end" ] ||
            { echo "it ended as '$(json_field end run.err)', not '$end'" && return; }
        [ "$(json_field forced run.err)" -ge "$forced" ] ||
            { echo "only $(json_field forced run.err) forced points, not $forced" && return; }
    fi
    tr -d '\r' <run.out | grep -qE "^$expect\$" || { echo "no line '$expect' on its console" && return; }
    [ "$replayed" = 0 ] || { echo "replay: exit status $replayed" && return; }
    [ "$(json_field result replay.err)" = identical ] ||
        { echo "replay: $(json_field result replay.err)" && return; }
    same_text run.out replay.out || { echo "the replay shows other output" && return; }
    local clock
    for clock in $clocks; do
        ditto_bounded "$seconds" replay.out replay.err verify --clock "$clock" run.ditto ||
            { echo "verify with the clock $clock: exit status $?" && return; }
    done
    [[ " ${what[*]} " == *' --smp crew '* ]] || return
    ditto_bounded "$seconds" replay.out replay.err verify --parallel run.ditto ||
        echo "verify --parallel: exit status $?"
}

# check NUMBER NAME
check() {
    local name=$2 file script end error brief expect forced seconds clocks replay_seconds reason
    local -a what
    file=$(setting "$name" file '')
    script=$(setting "$name" script '')
    end=$(setting "$name" end 'powered off')
    error=$(setting "$name" error '')
    expect=$(setting "$name" expect '.*')
    forced=$(setting "$name" forced 0)
    seconds=$(setting "$name" timeout 300)
    clocks=$(setting "$name" clocks '')
    read -ra what <<<"$(setting "$name" args '')"
    : >keys
    [ -n "${LONG:-}" ] && brief='' || brief=$(setting "$name" brief '')
    if [ -n "$file" ]; then
        what+=(--memory 32M --append "$(setting "$name" append '') $brief" --kernel "$BUILD/guests/$file.elf")
    elif [ "$(setting "$name" from '')" = prompt ]; then
        typed "$script" "$(setting "$name" n '')" >keys
        what+=(--from "$booted")
    else
        file=$(setting "$name" image '')
        # The vsyscall page is for old programs only; Debian's kernels have none unless they are told.
        what+=(--append "ditto.script=$script ditto.n=$(setting "$name" n '') vsyscall=xonly"
            "${file:+$BUILD/guest/}${file:-$IMAGE}")
    fi
    rm -f run.* replay.*
    DITTO_IN=$PWD/keys ditto_forced "$seconds" "$forced" run.out run.err run.ditto "${what[@]}"
    recorded=$?
    replayed=-
    if [ -e run.ditto ]; then
        ditto_bounded "$seconds" replay.out replay.err replay --json run.ditto
        replayed=$?
        replay_seconds=$(json_field seconds replay.err)
    fi
    reason=$(why_not)
    if [ -z "$reason" ]; then
        printf 'ok %d %s # %.1f s, replayed in %.1f s\n' "$1" "$name" \
            "$(json_field seconds run.err)" "$replay_seconds"
        return
    fi
    echo "not ok $1 $name: $reason"
    commented run.out run.err replay.out replay.err
    mv run.ditto "failed-$name.ditto" 2>/dev/null
}

named=$#
# shellcheck disable=SC2046 # names are words
[ $named -gt 0 ] || set -- $(guests_of "${OF:-}" | awk -v part="${PART:-1/1}" 'BEGIN { split(part, p, "/") }
    (NR - p[1]) % p[2] == 0')
work=$(mktemp -d "$BUILD/guests-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
[ -d "${DITTO_DATADIR:-}" ] || export DITTO_DATADIR=$BUILD/khost

run=() skipped=()
echo "1..$#"
for name; do
    skip=$(setting "$name" skip '')
    [ -n "${LONG:-}" ] || [ -z "$(setting "$name" long '')" ] || skip='takes minutes: make check-all'
    needs=$(setting "$name" needs '')
    if [ -n "$needs" ]; then
        [ -n "${can:-}" ] || can=$(bounded 120 "$BUILD/tools/in_host" "$DITTO" --host native doctor 2>/dev/null)
        grep -q "^$needs  *ok" <<<"$can" || skip="doctor says that this CPU lacks it: $needs"
    fi
    if [ $named = 0 ] && [ -n "$skip" ]; then
        skipped+=("$name # SKIP $skip")
    elif [ -n "$(setting "$name" file '')$(setting "$name" script '')" ]; then
        run+=("$name")
    else
        echo "run.sh: list.cfg has no guest '$name'" >&2
        exit 2
    fi
done
ditto_start
for name in "${run[@]}"; do
    [ -n "${booted:-}" ] || [ "$(setting "$name" from '')" != prompt ] || booted
done
number=0
for name in "${run[@]}"; do
    number=$((number + 1))
    check $number "$name"
done
for skip in "${skipped[@]}"; do
    number=$((number + 1))
    echo "ok $number $skip"
done
for recording in failed-*.ditto; do
    name=${recording#failed-}
    keep_failed "$recording" "${name%.ditto}"
done
[ ! -e "$recording" ]
