#!/bin/bash
# net.sh [PAIRS [MB]]: what recording costs a network, plain and recorded in turn, PAIRS times (default 3): MB megabytes
# (default 30) into the guest by HTTP, by its clock; as many out of it, and 500 requests by ab from a server in it; how
# long the recording of all that and its replay take, and the log's bytes for each received, which are those that it has
# more than a recording with 1 MB. Beside it QEMU's record/replay (lib/rr.sh). Medians on stdout.
set -u
tree=$(cd "$(dirname "$0")/../.." && pwd)
. "$tree/tests/lib/common.sh"
. "$tree/tests/lib/rr.sh"
PATH=$PATH:/sbin:/usr/sbin
pairs=${1:-3} mb=${2:-30}
work=$(mktemp -d "$BUILD/bench-XXXXXX") || exit 1
web=
trap 'kill $web 2>/dev/null; rm -rf "$work"' EXIT
cd "$work" || exit 1

note() {
    echo "$2" >>"$1.figures"
}

# speed PLACE: MB/s of what took so many hundredths of a second on the console; a part of its line names it.
speed() {
    tr -d '\r' <run.out | awk -v mb="$mb" -v what="$1" '/^took/ && index($0, what) { print mb * 100 / $2; exit }'
}

# use NAME MB MACHINE: the machine of this process, from outside, until its server has been stopped.
use() {
    local mb=$2
    until grep -q serving run.out; do
        kill -0 "$3" 2>/dev/null || { tail -n 5 run.err >&2 && exit 1; }
        sleep 0.2
    done
    sleep 1
    note "$1.out" "$(curl -s -o /dev/null -w '%{speed_download}\n' "http://127.0.0.1:$forwarded/blob" |
        awk '{ print $1 / 1048576 }')"
    note "$1.requests" "$(ab -q -n 500 -c 4 "http://127.0.0.1:$forwarded/line" 2>/dev/null |
        awk '/^Requests per second/ { print $4 }')"
    curl -s -o /dev/null "http://127.0.0.1:$forwarded/cgi-bin/stop"
    wait "$3" || exit 1
    note "$1.in" "$(speed blob)"
}

# script MB: what the guest does
script() {
    echo "ditto.script=net ditto.n=time=http://10.0.2.2:$port/blob$1,serve=$1"
}

# run NAME MB ARGUMENT...
run() {
    forwarded=$(free_port)
    : >run.out
    bounded 600 "$DITTO" run --json "${@:3}" --net "user,hostfwd=tcp::$forwarded-:80" --memory 512M \
        --append "$(script "$2")" "$IMAGE" </dev/null >run.out 2>run.err &
    use "$1" "$2" $!
    note "$1" "$(json_field seconds run.err)"
}

# qemu_machine HOW: the same by rr_run
qemu_machine() {
    rr_run "$1" -m 512 -kernel vmlinuz -initrd initrd "${rr_disks[@]}" -device virtio-net-pci,netdev=net \
        -netdev "user,id=net,hostfwd=tcp::$forwarded-:80" -object filter-replay,id=filter,netdev=net \
        -append "$(cat cmdline) $(script "$mb")" && note "qemu.$1" "$rr_seconds"
}

# qemu HOW
qemu() {
    : >run.out
    if [ "$1" = replayed ]; then # nobody uses it; where it stands still, once is enough
        [ -e stood-still ] || RR_PATIENCE=30 qemu_machine replayed || {
            echo 'net: the replay of QEMU stood still' >&2
            touch stood-still
        }
        return
    fi
    forwarded=$(free_port)
    qemu_machine "$1" &
    use "qemu.$1" "$mb" $!
}

mkdir www
for n in 1 "$mb"; do
    head -c $((n << 20)) /dev/urandom >"www/blob$n"
done
port=$(free_port)
python3 -m http.server --bind 127.0.0.1 --directory www "$port" >/dev/null 2>&1 &
web=$!
# note_log NAME: bytes of the log, without the data that was received
note_log() {
    "$DITTO" info run.ditto >info.txt 2>/dev/null
    note "$1" "$(sed -n 's/^ *\(events\|inputs\|time stamps\|sync points\) .* \([0-9]*\) stored$/\2/p' info.txt |
        awk '{ sum += $1 } END { print sum }')"
}

rr_boot_files || exit 1
rr_disks=()
rr_disk "$IMAGE"
for ((i = 0; i < pairs; i++)); do
    run plain "$mb"
    run recorded "$mb" --force -o run.ditto
    note_log log
    bounded 600 "$DITTO" verify --json run.ditto >verify.out 2>/dev/null || exit 1
    note replayed "$(json_field seconds verify.out)"
    run short 1 --force -o run.ditto
    note_log log.short
    for how in plain recorded replayed; do
        qemu $how
    done
done
of() {
    [ ! -e "$1.figures" ] || median <"$1.figures"
}
# table NAME-OF-PLAIN NAME-OF-RECORDED NAME-OF-REPLAYED
table() {
    for way in in out requests; do
        awk -v way=$way -v p="$(of "$1.$way")" -v r="$(of "$2.$way")" 'BEGIN {
            what = way == "requests" ? "requests a second" : "TCP " way ", MB/s"
            printf "| %s | %.1f | %.1f | %.2f |\n", what, p, r, r / p }'
    done
    awk -v p="$(of "$1")" -v r="$(of "$2")" -v v="$(of "$3")" 'BEGIN {
        printf "| the whole run, s | %.1f | %.1f | %.2f |\n| its replay, s | | %s | |\n", p, r, r / p,
            v ? sprintf("%.1f", v) : "none" }'
}
echo "| | plain | recorded | recorded / plain |"
echo "|---|---|---|---|"
table plain recorded replayed
awk -v log_="$(of log)" -v short="$(of log.short)" -v mb="$mb" 'BEGIN {
    printf "| log, %% of the bytes received | | %.2f | |\n", 100 * (log_ - short) / ((mb - 1) * 1048576) }'
echo "| QEMU (TCG, filter-replay) | | | |"
table qemu.plain qemu.recorded qemu.replayed
