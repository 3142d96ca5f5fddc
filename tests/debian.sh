#!/bin/bash
# debian.sh: a debootstrapped Debian with systemd, from its boot loader to power-off: somebody logs in
# over the serial console and uses it, all under --record; then the recording is verified. Takes about
# 3 minutes, and once more for making the image. Exit status 1 when it is not identical.
set -u
tree=$(cd "$(dirname "$0")/.." && pwd)
. "$tree/tests/lib/common.sh"
IMAGE=${DEBIAN_IMAGE:-$BUILD/guest/debian.img}
limit=${SECONDS_MAX:-900}
work=$(mktemp -d "$BUILD/debian-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

fail() {
    echo "debian: $*" >&2
    tail -n 20 console run.err verify.err 2>/dev/null | tr -d '\r' >&2
    keep_failed run.ditto "debian-$(date +%H%M%S)" >&2
    exit 1
}

# answer SEEN TIMES LINE: types the line once the console has shown SEEN (a regular expression) so often.
answer() {
    for ((i = 0; i < limit; i++)); do
        [ "$(grep -aoE -- "$1" console | wc -l)" -lt "$2" ] || { echo "$3" >&3 && return; }
        kill -0 $machine 2>/dev/null || break
        sleep 1
    done
    fail "the console never showed '$1'"
}

mkfifo keyboard
: >console
bounded "$limit" "$DITTO" run --json --record -o run.ditto --memory 384M "$IMAGE" \
    <keyboard >console 2>run.err &
machine=$!
exec 3>keyboard
answer 'login: ' 1 root
answer 'assword: ' 1 ditto
# shellcheck disable=SC2016 # the guest's shell expands it
answer '# ' 1 'echo the system is $(systemctl is-system-running --wait)'
answer 'the system is [a-z]' 1 'od -An -N8 -tx1 /dev/urandom; date +%N; dmesg | md5sum; find / -xdev | md5sum'
answer '  -' 2 'systemctl poweroff'
exec 3>&-
wait $machine || fail "recording: exit status $?"
[ "$(json_field end run.err)" = 'powered off' ] || fail "it ended as '$(json_field end run.err)'"
bounded "$limit" "$DITTO" verify --json run.ditto >verify.out 2>verify.err </dev/null ||
    fail "verify: exit status $?"
[ "$(json_field result verify.out)" = identical ] || fail 'not identical'
[ "$(json_field digest run.err)" = "$(json_field digest verify.out)" ] || fail 'other digests'
printf 'debian: identical; recorded in %.1f s, verified in %.1f s; %s sync points, %s forced, %s bytes\n' \
    "$(json_field seconds run.err)" "$(json_field seconds verify.out)" \
    "$(json_field syncs run.err)" "$(json_field forced run.err)" "$(json_field bytes run.err)"
