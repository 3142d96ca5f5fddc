#!/bin/bash
# world.sh [SERVICE...]: a Debian with a network, recorded while somebody outside uses it, and verified without one:
#   apt       apt-get update and install, from a mirror that this test serves
#   nginx     10,000 requests (REQUESTS) by ab
#   ssh       a session with keys, a file there and back
#   postgres  pgbench from outside
#   cloud     an image with cloud-init, of its own kernel, on a disk that is larger than it: a login by a key that it
#             was given, and a root that has grown
# Each TIMES times (default 1). The image is that of the matrix of guests, world. Exit status 1 when one fails.
set -u
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$tree/tests/lib/common.sh"
export MATRIX=$BUILD/matrix
times=${TIMES:-1} requests=${REQUESTS:-10000}
work=$(mktemp -d "$BUILD/world-XXXXXX") || exit 1
web=
trap '[ -z "$web" ] || kill $web; rm -rf "$work"' EXIT
cd "$work" || exit 1

# ready: the server inside says that it is; false: the machine has ended.
ready() {
    until grep -aq 'world: ready' console; do
        kill -0 $machine 2>/dev/null || return 1
        sleep 0.5
    done
}

shell() {
    ssh -q -p "$port" -i key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o ConnectTimeout=100 \
        "$user@127.0.0.1" "$@"
}

use_apt() {
    wait $machine
    grep -aq 'Hello, world!' console
}

use_nginx() {
    ready && ab -q -n "$requests" -c 8 "http://127.0.0.1:$port/" >used 2>&1 || return 1
    curl -s -o /dev/null "http://127.0.0.1:$port/stop"
    grep -q "^Complete requests: *$requests" used && grep -q '^Failed requests: *0' used
}

use_ssh() {
    ready || return 1
    shell 'cat >/root/there; md5sum </root/there; cat /root/there >&2' <blob >used 2>back &&
        cmp -s back blob && [ "$(cut -c-32 used)" = "$(md5sum <blob | cut -c-32)" ] &&
        shell 'uname -a; ls -lR /usr/share | md5sum' >used && shell 'touch /run/stop'
}

use_postgres() {
    local database=(-h 127.0.0.1 -p "$port" -U postgres)
    ready && pgbench -q -i -s 1 "${database[@]}" postgres >used 2>&1 &&
        pgbench -n -c 3 -t 100 "${database[@]}" postgres >used 2>&1 &&
        psql -q "${database[@]}" -c "copy (select 1) to '/run/stop'" postgres >>used 2>&1 &&
        grep -q 'transactions actually processed: 300/300' used
}

use_cloud() {
    local tries
    user=debian
    for ((tries = 0; tries < 300; tries++)); do
        kill -0 $machine 2>/dev/null || return 1
        shell 'cloud-init status --wait; hostname; cat /etc/motd; df --output=size -B1G / | tail -n 1' >used 2>&1 && break
        sleep 2
    done
    shell 'sudo systemctl poweroff'
    grep -q 'status: done' used && grep -q '^seeded$' used && grep -q '^made by cloud-init$' used &&
        [ "$(tail -n 1 used)" -ge 3 ] # the root has grown with its disk
}

# once NAME: records it while it is used, and verifies.
once() {
    local inner=22
    local -a boot=(--kernel "$MATRIX"/world.boot/vmlinuz-*-amd64 --initrd "$MATRIX"/world.boot/initrd.img-*-amd64
        --append "root=/dev/vda rw init=/matrix/init net.ifnames=0 matrix.run=world,$1,$web_port" --disk "$MATRIX/world.img")
    user=root
    # Its units run into their limits otherwise.
    [ "$1" != cloud ] || boot=(--slow 5 --cloud-init user-data --ssh-key key.pub
        --disk "$MATRIX/cloud.img,size=3G")
    case $1 in nginx) inner=80 ;; postgres) inner=5432 ;; esac
    port=$(free_port)
    rm -f console used
    : >console
    bounded 1200 "$DITTO" run --json -o run.ditto --force --memory 512M --net "user,hostfwd=tcp::$port-:$inner" \
        "${boot[@]}" >console 2>run.err </dev/null &
    machine=$!
    "use_$1" || { pkill -TERM -P $machine; wait $machine; return 1; }
    wait $machine || return 1
    [ "$(json_field end run.err)" = 'powered off' ] || return 1
    bounded 1200 "$DITTO" verify --json run.ditto >verify.out 2>verify.err </dev/null &&
        [ "$(json_field result verify.out)" = identical ]
}

[ $# -gt 0 ] || set -- apt nginx ssh postgres cloud
bash "$tree/tests/matrix/image.sh" world || exit 1
[[ " $* " != *' cloud '* ]] || bash "$tree/tests/matrix/image.sh" cloud || exit 1
printf '#cloud-config\nlocale: false\nhostname: seeded\nwrite_files:\n  - path: /etc/motd\n    content: "made by cloud-init\\n"\n' >user-data
mkdir mirror
(cd mirror && apt-get download -q hello >/dev/null && apt-ftparchive packages . >Packages) || exit 1
ssh-keygen -q -N '' -t ed25519 -f key
head -c 200000 /dev/urandom >blob
web_port=$(free_port)
python3 -m http.server --bind 127.0.0.1 "$web_port" >/dev/null 2>&1 &
web=$!
status=0 number=0
echo "1..$(($# * times))"
for service; do
    for ((i = 0; i < times; i++)); do
        number=$((number + 1))
        if once "$service"; then
            printf 'ok %d %s # recorded in %.1f s, verified in %.1f s, %s sync points, %s forced, %s bytes\n' $number \
                "$service" "$(json_field seconds run.err)" "$(json_field seconds verify.out)" \
                "$(json_field syncs run.err)" "$(json_field forced run.err)" "$(json_field bytes run.err)"
            continue
        fi
        echo "not ok $number $service"
        status=1
        commented used run.err verify.out verify.err
        tail -n 20 console | tr -d '\r' | sed 's/^/#   /'
        [ ! -e run.ditto ] || keep_failed run.ditto "world-$service-$number"
    done
done
exit $status
