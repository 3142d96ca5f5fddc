#!/bin/sh
# make demo: from a fresh checkout to a machine that was recorded, replayed and verified, in the
# current directory (disk.img, disk.ditto). Installs missing Debian packages with root's help.
set -eu
tree=$(cd "$(dirname "$0")/.." && pwd)

say() {
    printf '\n== %s\n' "$*"
}

# field NAME FILE: a value of the JSON object on one line of the file.
field() {
    sed -n 's/^{.*"'"$1"'": "\{0,1\}\([^",}]*\).*/\1/p' "$2" | tail -n 1
}

if ! missing=$("$tree/guest-tools/install-deps.sh" --check demo); then
    say "installing: $missing"
    if [ "$(id -u)" = 0 ]; then
        "$tree/guest-tools/install-deps.sh" demo
    else
        sudo "$tree/guest-tools/install-deps.sh" demo
    fi
fi

say "building dittovm, the emulated KVM host and a small Debian guest"
[ -e "$tree/config.mk" ] || (cd "$tree" && ./configure)
make -C "$tree" --no-print-directory dittovm khost guest-image
cp --sparse=always "$tree/build/guest/small.img" disk.img
PATH=$tree:$PATH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# A run is shown and its summary kept; a failing one ends the demo with its messages.
shown() {
    name=$1
    shift
    echo "\$ $*"
    if ! "$@" </dev/null >"$work/$name.out" 2>"$work/$name.err"; then
        cat "$work/$name.out" "$work/$name.err"
        exit 1
    fi
    grep -v '^{' "$work/$name.out" || true
}

say "the machine, plain"
shown plain dittovm run --json --append ditto.script=hello disk.img
say "recorded: another time, another answer"
shown record dittovm run --record --force --json --append ditto.script=hello disk.img
say "replayed without its disk image: the same answer, down to the nanosecond"
mv disk.img disk.img.away
shown replay dittovm replay --json disk.ditto
mv disk.img.away disk.img
say "verified: every register at every exit, all memory at the end"
shown verify dittovm verify --json disk.ditto
dittovm info disk.ditto >"$work/info"

same=DIFFER
cmp -s "$work/record.out" "$work/replay.out" && same="the same, $(wc -c <"$work/record.out") bytes"
say "in numbers"
printf '%-26s %s s plain, %s s recorded, %s s replayed\n' 'wall time' \
    "$(printf %.1f "$(field seconds "$work/plain.err")")" \
    "$(printf %.1f "$(field seconds "$work/record.err")")" \
    "$(printf %.1f "$(field seconds "$work/replay.err")")"
printf '%-26s %s events, %s sync points, %s forced points\n' 'recorded' \
    "$(field events "$work/record.err")" "$(field syncs "$work/record.err")" \
    "$(field forced "$work/record.err")"
printf '%-26s %s bytes\n' 'recording' "$(field bytes "$work/record.err")"
sed -n 's/^    \(.*[^ ]\)  *[0-9]* bytes, *\([0-9]*\) stored/\1 \2/p' "$work/info" |
    while read -r line; do
        printf '  %-24s %s bytes\n' "${line% *}" "${line##* }"
    done
printf '%-26s %s\n' 'console output' "$same"
recorded=$(field digest "$work/record.err") replayed=$(field digest "$work/verify.out")
printf '%-26s %s\n' 'end digest, recorded' "${recorded:-not shown}" \
    'end digest, replayed' "${replayed:-not shown}"
printf '%-26s %s\n' 'verify' "$(field result "$work/verify.out")"
[ "$same" != DIFFER ] && [ "${recorded:-$replayed}" = "$replayed" ]
