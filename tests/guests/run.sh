#!/bin/bash
# Records and replays the guests of list.cfg, or those named as arguments. Writes TAP.
set -u
here=$(cd "$(dirname "$0")" && pwd)
tree=$(cd "$here/../.." && pwd)
. "$tree/tests/lib/common.sh"

work=$(mktemp -d "$BUILD/guests-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

# why_not: the reason why the run that was just made and replayed is not as it should be, or nothing.
why_not() {
    [ "$recorded" = 0 ] || { echo "recording: exit status $recorded" && return; }
    [ "$(json_field end run.err)" = "$end" ] ||
        { echo "it ended as '$(json_field end run.err)', not '$end'" && return; }
    tr -d '\r' <run.out | grep -qE "^$expect\$" || { echo "no line '$expect' on its console" && return; }
    [ "$(json_field forced run.err)" -ge "$forced" ] ||
        { echo "only $(json_field forced run.err) forced points, not $forced" && return; }
    [ "$replayed" = 0 ] || { echo "replay: exit status $replayed" && return; }
    [ "$(json_field result replay.err)" = identical ] ||
        { echo "replay: $(json_field result replay.err)" && return; }
    cmp -s run.out replay.out || { echo "the replay shows other output" && return; }
    local clock
    for clock in $clocks; do
        bounded "$seconds" "$DITTO" verify --clock "$clock" run.ditto >replay.out 2>replay.err </dev/null ||
            { echo "verify with the clock $clock: exit status $?" && return; }
    done
}

# check NUMBER NAME
check() {
    local name=$2 file script end expect forced seconds clocks replay_seconds reason
    local -a what
    file=$(setting "$name" file '')
    script=$(setting "$name" script '')
    end=$(setting "$name" end 'powered off')
    expect=$(setting "$name" expect '.*')
    forced=$(setting "$name" forced 0)
    seconds=$(setting "$name" timeout 300)
    clocks=$(setting "$name" clocks '')
    read -ra what <<<"$(setting "$name" args '')"
    if [ -n "$file" ]; then
        what+=(--memory 32M --append "$(setting "$name" append '')" --kernel "$BUILD/guests/$file.elf")
    else
        what+=(--append "ditto.script=$script ditto.n=$(setting "$name" n '')" "$IMAGE")
    fi
    rm -f -- *
    bounded "$seconds" "$DITTO" run --json -o run.ditto "${what[@]}" \
        >run.out 2>run.err </dev/null
    recorded=$?
    replayed=-
    if [ $recorded = 0 ]; then
        bounded "$seconds" "$DITTO" replay --json run.ditto >replay.out 2>replay.err </dev/null
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
    keep_failed run.ditto "$name"
}

named=$#
# shellcheck disable=SC2046 # names are words
[ $named -gt 0 ] || set -- $(guests)
echo "1..$#"
number=0
for name; do
    number=$((number + 1))
    skip=$(setting "$name" skip '')
    if [ $named = 0 ] && [ -n "$skip" ]; then
        echo "ok $number $name # SKIP $skip"
    elif [ -n "$(setting "$name" file '')$(setting "$name" script '')" ]; then
        check $number "$name"
    else
        echo "not ok $number $name: list.cfg has no such guest"
    fi
done
