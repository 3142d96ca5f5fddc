#!/bin/bash
# oracle.sh [GUEST...]: is stepping exact, and does it agree with landmarks? A short run of each guest of
# list.cfg that says `oracle`, or of those named, is recorded with the clock `step`, replayed with the
# clock `landmark`, and replayed without KVM by a program that counts branches on its own
# (tests/tools/process_replay.c). Writes TAP; recordings that are not replayed so are kept.
set -u
tree=$(cd "$(dirname "$0")/.." && pwd)
. "$tree/tests/lib/common.sh"
export DITTO_DATADIR=$BUILD/khost
work=$(mktemp -d "$BUILD/oracle-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

# short_run GUEST: the guest's parameters; no more ticks than its `ticks` but with LONG=1.
short_run() {
    local parameters most
    parameters=$(setting "$1" oracle '') most=$(setting "$1" ticks 4)
    [ -n "${LONG:-}" ] || [[ ! $parameters =~ ticks=([0-9]+) ]] || [ "${BASH_REMATCH[1]}" -le "$most" ] ||
        parameters+=" ticks=$most"
    echo "$parameters"
}

# record GUEST: says what went wrong, or nothing. The machine's clock is slow, so that user code comes
# to a few steps between the ticks also where the host is busy: otherwise no tick needs a forced point.
record() {
    local -a what
    read -ra what <<<"$(setting "$1" args '')"
    ditto_bounded 120 run.out "$1.err" run --json -o "$1.ditto" --memory 32M --clock step --slow 3 \
        "${what[@]}" --append "hz=20 $(short_run "$1")" \
        --kernel "$BUILD/guests/$(setting "$1" file '').elf" ||
        { echo "recording: exit status $?" && return; }
    [ "$(json_field forced "$1.err")" -gt 0 ] || echo 'there is no forced point in it'
}

if [ $# = 0 ]; then
    for guest in $(guests); do
        [ -z "$(setting "$guest" oracle '')" ] || set -- "$@" "$guest"
    done
fi
echo "1..$#"
ditto_start
for guest; do
    wrong=$(record "$guest")
    [ -z "$wrong" ] || echo "$wrong" >"$guest.wrong"
done
bounded 400 "$BUILD/tools/process_replay" ./*.ditto >process.out 2>process.err
number=0 bad=0
for guest; do
    number=$((number + 1))
    if [ ! -e "$guest.wrong" ] && ! grep -q "^ok ./$guest.ditto:" process.out; then
        echo 'the replay as a process differs' >"$guest.wrong"
    elif [ ! -e "$guest.wrong" ]; then
        ditto_bounded 120 verify.out "$guest.err" verify --clock landmark "$guest.ditto" ||
            echo "verify with the clock landmark: exit status $?" >"$guest.wrong"
    fi
    if [ ! -e "$guest.wrong" ]; then
        echo "ok $number - oracle $guest #$(sed -n "s,^ok ./$guest.ditto:,,p" process.out)"
        continue
    fi
    bad=$((bad + 1))
    echo "not ok $number - oracle $guest: $(cat "$guest.wrong")"
    keep_failed "$guest.ditto" "oracle-$guest-$(date +%H%M%S)"
    commented "$guest.err" process.err
done
[ $bad = 0 ]
