#!/usr/bin/env bats
# NICs: frames in and out while recording, and a replay that needs no network for them.
load helper

# net_run STATUS REC DITTO_N NET...: records the small image with these NICs, in a host of its own.
net_run() {
    local status_wanted=$1 rec=$2 n=$3 net
    local -a nics=()
    for net in "${@:4}"; do
        nics+=(--net "$net")
    done
    seconds=240 ditto "$status_wanted" run --quiet -o "$rec" "${nics[@]}" --append "ditto.script=net ditto.n=$n" "$IMAGE"
}

# same_again REC: the replay is identical, and says what $output was.
same_again() {
    printf '%s' "$output" | tr -d '\r' >said
    ditto 0 replay "$1"
    [[ $stderr == *': identical, '* ]]
    printf '%s' "$output" | tr -d '\r' >said_again
    cmp said said_again
}

@test "user: what is fetched and what comes in by a forwarded port, and their frames afterwards" {
    mkdir www
    head -c 300000 /dev/urandom >www/blob
    head -c 100000 /dev/urandom >in
    local web forwarded
    web=$(free_port)
    forwarded=$(free_port)
    python3 -m http.server --bind 127.0.0.1 --directory www "$web" >http.log 2>&1 3>&- &
    local server=$!
    (
        until_said 60 "$BATS_TEST_TMPDIR/out" listening && cat in >"/dev/tcp/127.0.0.1/$forwarded"
    ) 3>&- &
    net_run 0 user.ditto "http://10.0.2.2:$web/blob,listen" "user,mac=52:54:00:0a:0b:0c,hostfwd=tcp::$forwarded-:7000"
    kill $server
    grep -q "address: 10.0.2.15/24" <<<"$output"
    grep -q "blob: $(md5sum <www/blob | cut -c-32)" <<<"$output"
    grep -q "received: $(md5sum <in | cut -c-32)" <<<"$output"
    same_again user.ditto # without all of that
    ditto 0 info user.ditto
    grep -q 'NIC 0 *52:54:00:0a:0b:0c, user' <<<"$output"
    ditto 0 info --json user.ditto
    jq -e '.nics[0].mac == "52:54:00:0a:0b:0c"' <<<"$output"
    ditto 0 dump user.ditto
    grep -q 'NIC 0 sends a frame of' <<<"$output"
    grep -q 'NIC 0 receives a frame of' <<<"$output"

    ditto 0 pcap user.ditto -o frames.pcapng
    grep -q 'frames sent' <<<"$stderr"
    tshark -r frames.pcapng --export-objects http,objects >/dev/null 2>&1
    cmp objects/blob www/blob
    [ -z "$(tshark -r frames.pcapng -o tcp.check_checksum:TRUE -o ip.check_checksum:TRUE \
        -Y 'tcp.checksum.status == 0 || ip.checksum.status == 0' 2>/dev/null)" ]
    tshark -r frames.pcapng -q -z follow,tcp,raw,1 2>/dev/null | grep -q .
    [ "$(tshark -r frames.pcapng -T fields -e frame.interface_name 2>/dev/null | sort -u)" = nic0 ]
}

@test "two machines talk to each other, and each recording replays alone" {
    ditto_to 240 a.out a.err run --quiet -o a.ditto --net "stream:unix:$PWD/wire,server" \
        --append "ditto.script=net ditto.n=address=10.9.0.1/24,listen" "$IMAGE" 3>&- &
    local a=$!
    until_said 60 a.err 'waiting for a peer'
    net_run 0 b.ditto address=10.9.0.2/24,send=10.9.0.1 "stream:unix:$PWD/wire"
    wait $a
    local sum
    sum=$(sed -n 's/^sent: \([0-9a-f]*\).*/\1/p' <<<"$output")
    [ ${#sum} = 32 ]
    grep -q "received: $sum" a.out
    same_again b.ditto
    ditto 0 verify a.ditto
}

@test "a peer that means no good: frames of all lengths, a flood, and what only test_net_wire has otherwise" {
    local what
    for what in lengths+flood:frames=5000 ${LONG:+garbage:wait=3 gone:wait=3}; do
        ditto_to 240 out err run --quiet -o "${what%:*}.ditto" --net "stream:unix:$PWD/${what%:*}.wire,server" \
            --append "ditto.script=net ditto.n=address=10.9.0.1/24,${what#*:}" "$IMAGE" 3>&- &
        local machine=$!
        until_said 60 err 'waiting for a peer'
        bounded 300 python3 "$tree/tests/cli/net_peer.py" "$PWD/${what%:*}.wire" "${what%:*}" >peer.out
        wait $machine || { cat err && false; }
        grep '^sent' peer.out
        grep 'frames received' out
        ! grep -q 'replay may diverge' err
        ditto 0 verify "${what%:*}.ditto"
        mv out "${what%:*}.out"
        rm err
    done
    grep -q 'frames received: 5[0-9][0-9][0-9],' <(tr -d '\r' <lengths+flood.out)
}

# machine_at NAME WHAT: one whose NIC waits at the socket NAME and which does this, in the background, as $machine.
machine_at() {
    ditto_to "${seconds:-240}" "$1.out" "$1.err" run --quiet -o "$1.ditto" --net "stream:unix:$PWD/$1,server" \
        --append "ditto.script=net ditto.n=$2" "$IMAGE" 3>&- &
    machine=$!
    until_said 60 "$1.err" 'waiting for a peer'
}

@test "of the frames between two machines one in five is lost, each way: what they send arrives all the same" {
    [ -n "${LONG:-}" ] || skip 'takes minutes: make check-all'
    local a b sum lost passed seconds=480
    machine_at a address=10.9.0.1/24,listen
    a=$machine
    machine_at b address=10.9.0.2/24,send=10.9.0.1
    b=$machine
    bounded 300 python3 "$tree/tests/cli/net_peer.py" "$PWD/a" lossy "$PWD/b" >peer.out 3>&-
    wait "$a"
    wait "$b"
    cat peer.out
    read -r _ _ passed _ lost <peer.out
    [ "$lost" -ge 10 ] && [ $((lost * 10)) -gt "$passed" ]
    sum=$(tr -d '\r' <b.out | sed -n 's/^sent: \([0-9a-f]*\).*/\1/p')
    [ ${#sum} = 32 ]
    grep -q "received: $sum" a.out
    ! grep -q 'replay may diverge' a.err b.err
    ditto 0 verify a.ditto
    ditto 0 verify b.ditto
}

@test "frames of every length, 0 to 65,550" {
    [ -n "${LONG:-}" ] || skip 'takes minutes: make check-all'
    seconds=900 machine_at all address=10.9.0.1/24,frames=65550
    bounded 900 python3 "$tree/tests/cli/net_peer.py" "$PWD/all" all 3>&-
    wait "$machine"
    tr -d '\r' <all.out | grep 'frames received: [0-9]*, bad: 0'
    # A long one is dropped where the driver has not put out as many buffers again as it takes: how many are depends on
    # how fast the peer is (39,000 to 59,000 lengths came).
    "$DITTO" dump all.ditto | sed -n 's/.*NIC 0 receives a frame of \([0-9]*\) bytes.*/\1/p' | sort -nu >lengths
    head -n 1514 lengths | cmp - <(seq 1514)
    [ "$(tail -n 1 lengths)" = 65550 ] && [ "$(wc -l <lengths)" -gt 20000 ]
    echo "$(wc -l <lengths) lengths"
    ! grep -q 'replay may diverge' all.err
    seconds=900 ditto 0 verify all.ditto
    echo "$output"
}

# fetched_by ARGUMENT...: a machine of this kind fetches a file, is verified, and its frames hold the file.
fetched_by() {
    mkdir -p www
    head -c 400000 /dev/urandom >www/blob
    local web
    web=$(free_port)
    python3 -m http.server --bind 127.0.0.1 --directory www "$web" >http.log 2>&1 3>&- &
    local server=$!
    seconds=900 ditto 0 run --quiet --force -o kind.ditto --net user "$@" \
        --append "ditto.script=net ditto.n=http://10.0.2.2:$web/blob" "$IMAGE"
    kill $server
    grep -q "blob: $(md5sum <www/blob | cut -c-32)" <<<"$output"
    seconds=900 ditto 0 verify kind.ditto
    rm -rf objects
    seconds=900 ditto 0 pcap kind.ditto -o frames.pcapng
    tshark -r frames.pcapng --export-objects http,objects >/dev/null 2>&1
    cmp objects/blob www/blob
}

@test "several CPUs that take turns" {
    fetched_by --cpus 2
}

@test "several CPUs at the same time" {
    [ -n "${LONG:-}" ] || skip 'takes minutes: make check-all'
    fetched_by --cpus 2 --smp crew --slow 10
    seconds=900 ditto 0 verify --parallel kind.ditto
}

# Both are NAT with addresses of their own.
@test "passt, a TAP device and a bridge" {
    [ -n "${LONG:-}" ] || skip 'as user and stream: make check-all'
    command -v passt >/dev/null || skip 'passt is not installed'
    net_run 0 passt.ditto wait=1 passt
    grep -q 'frames received: [1-9]' <<<"$output"
    same_again passt.ditto
    [ -w /dev/net/tun ] && ip tuntap add ditto-test mode tap 2>/dev/null || skip 'no TAP device can be made here'
    ip addr add 10.78.0.1/24 dev ditto-test
    ip link set ditto-test up
    mkdir www
    head -c 100000 /dev/urandom >www/blob
    local web
    web=$(free_port)
    python3 -m http.server --bind 10.78.0.1 --directory www "$web" >http.log 2>&1 3>&- &
    local server=$!
    net_run 0 tap.ditto "address=10.78.0.2/24,http://10.78.0.1:$web/blob" tap:ditto-test || ip link del ditto-test
    kill $server
    ip link del ditto-test
    grep -q "blob: $(md5sum <www/blob | cut -c-32)" <<<"$output"
    same_again tap.ditto

    ip link add ditto-test type bridge 2>/dev/null || skip 'no bridge can be made here'
    ip addr add 10.78.0.1/24 dev ditto-test
    ip link set ditto-test up
    python3 -m http.server --bind 10.78.0.1 --directory www "$web" >http.log 2>&1 3>&- &
    server=$!
    net_run 0 bridge.ditto "address=10.78.0.2/24,http://10.78.0.1:$web/blob" bridge:ditto-test || ip link del ditto-test
    kill $server
    [ -z "$(ip -o link show master ditto-test)" ] # its port went with it
    ip link del ditto-test
    grep -q "blob: $(md5sum <www/blob | cut -c-32)" <<<"$output"
    same_again bridge.ditto
}

@test "nowhere plugged in, and four of them" {
    net_run 0 none.ditto wait=0 none none none,mac=52:54:00:00:00:03 none
    grep -q 'ditto: net ended with status 0' <<<"$output"
    same_again none.ditto
    ditto 0 info none.ditto
    [ "$(grep -c 'NIC [0-3]' <<<"$output")" = 4 ]
}

@test "what cannot be is told in a line" {
    local port
    port=$(free_port)
    python3 -m http.server --bind 127.0.0.1 "$port" >http.log 2>&1 3>&- &
    local server=$!
    until curl -s -o /dev/null "http://127.0.0.1:$port/"; do sleep 0.1; done
    ditto 1 run --net "user,hostfwd=tcp::$port-:22" "$IMAGE"
    one_error "cannot forward TCP port $port of 127.0.0.1: Address already in use"
    kill $server
    ditto 1 run --net stream:unix:/nowhere/wire "$IMAGE"
    one_error 'cannot connect to unix:/nowhere/wire: No such file'
    ditto 1 run --net bridge:ditto-no "$IMAGE"
    one_error 'cannot use ditto-no'
    ditto 2 run --net stream:here "$IMAGE"
    one_error 'stream takes unix:PATH'
    ditto 2 run --net usr "$IMAGE"
    one_error "not 'usr'"
    ditto 2 run --net user,what=ever "$IMAGE"
    one_error "does not take 'what=ever'"
    ditto 2 run --net none --net none --net none --net none --net none "$IMAGE"
    one_error 'at most 4 NICs'
    ditto 1 --host vmx run --net user "$IMAGE"
    one_error 'no --net there'
    ditto 2 pcap
    one_error 'give one recording'
    ditto 1 pcap "$SHARED/small.ditto" -o x
    one_error 'a machine without a NIC'
    ditto 2 pcap "$SHARED/small.ditto" -o "$SHARED/small.ditto"
    one_error 'is the recording itself'
}

@test "tap is for root" {
    [ "$(id -u)" = 0 ] || skip 'only root can be somebody else'
    run -1 setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/tmp "$DITTO" run --net tap:ditto0 "$IMAGE"
    grep -q 'cannot use ditto0' <<<"$output"
}

@test "going live: with another network, with none, and from a snapshot" {
    mkdir www
    head -c 100000 /dev/urandom >www/blob
    local web place
    web=$(free_port)
    python3 -m http.server --bind 127.0.0.1 --directory www "$web" >http.log 2>&1 3>&- &
    local server=$!
    seconds=240 ditto 0 run --quiet -o net.ditto --net user --checkpoint-every 4 \
        --append "ditto.script=net ditto.n=http://10.0.2.2:$web/blob,wait=8,http://10.0.2.2:$web/blob" "$IMAGE"
    # From a place between the two.
    "$DITTO" dump net.ditto >dumped 2>/dev/null
    place=$(awk '/NIC 0/ && last && $1 > last + 2000 { print last; exit } /NIC 0 receives/ { last = $1 }' dumped)
    echo "from sync point $place"
    seconds=240 ditto 0 run --quiet --check-disk --from "net.ditto@$place" --net user -o live.ditto --disk "$IMAGE"
    [ "$(grep -c "blob: $(md5sum <www/blob | cut -c-32)" <<<"$output")" -ge 1 ]
    grep -q 'ditto: net ended with status 0' <<<"$output"
    ditto 0 verify live.ditto
    ditto 0 info live.ditto
    grep -q 'NIC 0' <<<"$output"
    # From the last snapshot, with nothing there.
    place=$("$DITTO" info net.ditto 2>/dev/null | awk '/^  snapshots / { found = 1; next } found && $NF == "yes" { name = $1 } END { print name }')
    echo "from snapshot $place"
    seconds=240 ditto 0 run --quiet --from "net.ditto@$place" -o alone.ditto --disk "$IMAGE" --net none
    ditto 0 verify alone.ditto
    kill $server
    ditto 2 run --from "net.ditto@$place" --net none --net none
    one_error 'has 1 NIC: no further --net'
    ditto 2 run --from "net.ditto@$place" --net none,mac=52:54:00:00:00:01
    one_error 'has the address it had'
}
