#!/usr/bin/env bats
# shellcheck disable=SC2154 # $tree is helper.bash's
# A machine is spoken to while it is recorded: marks, snapshots, how far it is, the end.
load helper

# begin REC ARGUMENT...: it is recorded in the background ($pid), in a host of its own.
begin() {
    local rec=$1
    shift
    DITTO_SERVER='' bounded 240 "$DITTO" run --json -o "$rec" "$@" >run.out 2>run.err </dev/null 3>&- &
    pid=$!
    wait_until 60 test -s "$rec"
}

ended() {
    status=0
    wait "$pid" || status=$?
    cat run.err
    [ "$status" = 0 ]
}

# counting TICKS: arguments of a small guest that runs for as many hundredths of a second.
counting() {
    echo --memory 32M --append "ticks=$1" --kernel "$BUILD/guests/count-user.elf"
}

# boot_of REC N: the sync point at which info says that its N-th boot begins.
boot_of() {
    ditto 0 info "$1"
    awk -v boot="$2" '$1 == "boots" { at = 1 } at && $1 == boot { print $2; exit }' <<<"$output"
}

# in_gdb REC COMMAND...: what gdb says of them.
in_gdb() {
    local rec=$1 address
    shift
    address=unix:$PWD/gdb.socket
    DITTO_SERVER='' bounded 120 "$DITTO" replay --gdb="$address" "$rec" >gdb.out 2>gdb.err </dev/null 3>&- &
    pid=$!
    wait_until 60 grep -q gdb.socket gdb.err
    local -a said=()
    for command; do
        said+=(-ex "$command")
    done
    bounded 100 gdb -nx -batch -ex "target remote ${address#unix:}" "${said[@]}" -ex 'monitor when' -ex kill 2>&1
    kill "$pid" 2>/dev/null || true
    wait "$pid" || true
}

@test "marks, snapshots, stats and stop of a machine that runs; 500 malformed messages do not stop it" {
    # shellcheck disable=SC2046 # words
    begin c.ditto $(counting 6000)
    [ "$(stat -c '%a %F' c.ditto.ctl)" = '600 socket' ]
    ditto 0 ctl c.ditto mark 'first place'
    [[ $output == 'dittovm: mark at sync point '*' of c.ditto: first place' ]]
    ditto 0 ctl c.ditto snapshot here
    ditto 0 ctl c.ditto snapshot
    [[ $output == 'dittovm: snapshot 2 at sync point '* ]]
    ditto 1 ctl c.ditto snapshot here
    one_error 'there is such a snapshot already'
    ditto 1 ctl c.ditto snapshot 'a b'
    one_error "a name has up to 63 letters"
    ditto 2 ctl c.ditto mark "$(printf %0121d 1)"
    one_error 'a text or name has 1 to 120 bytes, not 121'
    python3 "$tree/tests/cli/control_client.py" c.ditto.ctl
    ditto 0 ctl --json c.ditto mark 'first place'
    [ "$(json_field ok <(echo "$output"))" = true ]
    ditto 0 ctl --json c.ditto stats
    echo "$output" >stats
    [ "$(json_field marks stats)" = 2 ]
    [ "$(json_field snapshots stats)" = 2 ]
    [ "$(json_field sync_points stats)" -gt 20 ]
    if [ "$(id -u)" = 0 ]; then # another user's, both ways
        chmod 755 . "$BATS_TEST_TMPDIR"
        run -1 setpriv --reuid=65534 --regid=65534 --clear-groups "$DITTO" ctl "$PWD/c.ditto" stop
        [[ $output == *"the control socket of $PWD/c.ditto is another user's"* || $output == *'Permission denied'* ]]
        mv c.ditto.ctl own && cp c.ditto c2.ditto
        python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.bind("c2.ditto.ctl")'
        chown 65534 c2.ditto.ctl
        ditto 1 ctl c2.ditto stop
        one_error "the control socket of c2.ditto is another user's"
        mv own c.ditto.ctl
    fi
    ditto 0 ctl c.ditto stop
    [ "$output" = 'dittovm: c.ditto is recorded' ]
    [ "$(dd if=c.ditto bs=1 skip=$(($(stat -c %s c.ditto) - 128)) 2>/dev/null | tr -d '\0')" = 'stopped by the user' ]
    ended
    [ ! -e c.ditto.ctl ]
    ditto 0 verify c.ditto
    ditto 0 verify c.ditto@here
    ditto 0 verify 'c.ditto@mark:first place#2'
    ditto 0 info c.ditto
    [ "$(grep -c '^    outside .* first place$' <<<"$output")" = 2 ]
    ditto 0 dump c.ditto
    [ "$(grep -c ' event  mark: first place$' <<<"$output")" = 2 ]
    ditto 1 ctl c.ditto stats
    one_error 'nobody records c.ditto'
    : >d.ditto
    python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.bind("d.ditto.ctl")'
    ditto 1 ctl d.ditto stats
    one_error 'nobody records d.ditto any more'
    ditto 1 ctl none.ditto stats
    one_error 'none.ditto: No such file'
    ditto 2 ctl c.ditto
    one_error 'ctl: give a recording, and snapshot'
    ditto 2 ctl c.ditto resume
    one_error 'ctl: give a recording, and snapshot'
}

@test "marks of the guest are places for other commands and for gdb" {
    ditto 0 run --quiet -o m.ditto --memory 32M --kernel "$BUILD/guests/marks.elf"
    ditto 0 info --json m.ditto
    echo "$output" >info
    [ "$(grep -c '"by_guest": true' info)" = 6 ]
    ditto 0 info m.ditto
    local at
    at=$(awk '$1 == "inside" && $NF == "last" { print $2 }' <<<"$output")
    ditto 0 dump m.ditto
    grep -q "^ *$at  event  mark of the guest: last\$" <<<"$output"
    ditto 0 replay m.ditto@mark:last
    [ "$(tr -d '\r' <<<"$output")" = marked ]
    ditto 0 core -o core m.ditto@mark:last
    [[ $output == *"as it was at sync point $at:"* ]]
    ditto 0 snapshot --name last m.ditto@mark:last
    [[ $output == *"snapshot last at sync point $at:"* ]]
    ditto 1 snapshot m.ditto@boot:1
    one_error 'boot:1 is where the recording begins'
    ditto 2 snapshot --every 5 m.ditto@mark:last
    one_error 'either @mark:last, or --at or --every'
    ditto 0 run --quiet --from m.ditto@mark:last
    [ "$(tr -d '\r' <<<"$output")" = marked ]
    ditto 0 run --quiet --from 'm.ditto@mark:again#2' -o live.ditto
    [[ $output == *marked* ]]
    ditto 0 verify live.ditto
    ditto 1 verify m.ditto@mark:nowhere
    one_error "has no mark 'nowhere'"
    ditto 1 core -o core2 'm.ditto@mark:again#3'
    one_error "has no mark 'again#3'"
    ditto 1 run --from m.ditto@boot:2
    one_error 'has 1 boot; there is no boot:2'
    ditto 1 run --from live.ditto@99999
    one_error 'there is no 99999'
    ditto 2 verify "m.ditto@mark:$(printf %0200d 1)"
    one_error "a mark's text has at most 120 bytes"
    ditto 2 verify --to 3 m.ditto@mark:last
    one_error "is before 'mark:last'"
    command -v gdb >/dev/null || skip 'gdb is not installed'
    in_gdb m.ditto 'monitor seek mark:last' 'monitor seek mark:again#2' 'monitor seek mark:none' >said
    cat said
    grep -q "^sync point $at, " said
    grep -q "has no mark 'none'" said
}

@test "--rtc: what the clock says at the start, and when a machine goes live" {
    ditto 2 run --rtc tomorrow "$IMAGE"
    one_error "\-\-rtc takes now, or a date .*, not 'tomorrow'"
    ditto 2 run --rtc 2031-02-29 "$IMAGE"
    one_error "not '2031-02-29'"
    ditto 2 run --rtc 1970-01-01 "$IMAGE"
    one_error "not '1970-01-01'"
    ditto 0 run --quiet -o r.ditto --rtc 2031-05-06T07:08:09 --memory 32M --kernel "$BUILD/guests/rtc.elf"
    [[ $(tr -d '\r' <<<"$output") == *'rtc 20310506'$'\n''rtc 20310506'* ]]
    ditto 0 run --quiet --from r.ditto@mark:between
    [ "$(tr -d '\r' <<<"$output" | tail -n 1)" = 'rtc 20310506' ]
    ditto 0 run --quiet --from r.ditto@mark:between --rtc 2044-02-29 -o live.ditto
    [ "$(tr -d '\r' <<<"$output" | tail -n 1)" = 'rtc 20440229' ]
    ditto 0 verify live.ditto
    ditto 0 run --quiet --from r.ditto@mark:between --rtc now
    [ "$(tr -d '\r' <<<"$output" | tail -n 1)" = "rtc $(date -u +%Y%m%d)" ]
}

@test "a guest that reboots by each of a PC's means is one recording, with each boot in it" {
    ditto 0 run --json --on-reboot boot -o b.ditto --memory 32M --kernel "$BUILD/guests/reboots.elf"
    grep -q '"boots": 5' <<<"$stderr"
    [ "$(tr -d '\r' <<<"$output" | grep -c '^left behind 1$')" = 5 ]
    ditto 0 verify b.ditto
    ditto 0 verify --clock step b.ditto
    ditto 0 info --json b.ditto
    [ "$(grep -c '"boot": [1-5]' <<<"$output")" = 5 ]
    ditto 0 dump b.ditto
    [ "$(grep -c ' event  the machine boots again$' <<<"$output")" = 4 ]
    ditto 0 verify b.ditto@boot:4
    # It goes on from behind a reboot, and is reset there.
    ditto 0 run --quiet --from b.ditto@boot:4 -o live.ditto
    ditto 0 verify live.ditto
    local third
    third=$(boot_of b.ditto 3)
    [[ $(ditto 0 core -f -o core b.ditto@boot:3 && echo "$output") == *"at sync point $((third + 1)):"* ]]
    ditto 1 run --from "b.ditto@$third"
    one_error 'there is nothing to go on with'
    ditto 0 run --quiet -o end.ditto --memory 32M --kernel "$BUILD/guests/reboots.elf"
    [[ $output != *'boot 2'* ]]
    ditto 2 run --on-reboot twice --kernel "$BUILD/guests/reboots.elf"
    one_error "\-\-on-reboot takes end or boot, not 'twice'"
    ditto 2 run --on-reboot boot --smp crew --cpus 2 --kernel "$BUILD/guests/reboots.elf"
    one_error 'crew cannot have --on-reboot boot'
    ditto 2 run --on-reboot boot --from b.ditto
    one_error 'makes no sense with --from'
    command -v gdb >/dev/null || skip 'gdb is not installed'
    in_gdb b.ditto 'monitor seek boot:3' 'break *0x200000' continue 'monitor when' reverse-continue 'monitor when' \
        "monitor seek $third" stepi 'monitor when' reverse-stepi >said
    cat said
    grep -q "^sync point $((third + 1)), " said
    grep -q "^sync point $third and some instructions, rip 0x200000 " said
    grep -q "^sync point $third + 1, " said
}

@test "Linux reboots, and its disk is as it has left it" {
    seconds=240 ditto 0 run --quiet --on-reboot boot -o l.ditto --append 'ditto.script=reboots ditto.n=2' "$IMAGE"
    tr -d '\r' <<<"$output" >said
    grep -q '^boot 1 of 2, ' said
    grep -q '^boot 2 of 2, ' said
    seconds=240 ditto 0 verify l.ditto
    [ "$(boot_of l.ditto 2)" -gt 10000 ]
}

@test "Linux goes on live behind a reboot, and reboots with two CPUs" {
    [ -n "${LONG:-}" ] || skip 'make check-all'
    seconds=240 ditto 0 run --quiet --on-reboot boot -o l.ditto --append 'ditto.script=reboots ditto.n=2' "$IMAGE"
    seconds=240 ditto 0 run --quiet --from l.ditto@boot:2 -o live.ditto
    tr -d '\r' <<<"$output" | grep -q '^boot 2 of 2, '
    seconds=240 ditto 0 verify live.ditto
    seconds=300 ditto 0 run --quiet --on-reboot boot --cpus 2 -o two.ditto --append 'ditto.script=reboots ditto.n=2' \
        "$IMAGE"
    seconds=300 ditto 0 verify two.ditto
}

@test "a program in Linux makes a mark" {
    [ -n "${LONG:-}" ] || skip 'make check-all'
    seconds=300 ditto 0 run --quiet -o m.ditto --append 'ditto.script=reboots ditto.n=1' \
        "$BUILD/guest/modules.img"
    ditto 0 info m.ditto
    grep -q '^    inside .* boot 1$' <<<"$output"
    seconds=300 ditto 0 run --quiet --from 'm.ditto@mark:boot 1' --rtc 2044-02-29
    tr -d '\r' <<<"$output" | grep -q '^boot 1 of 1, the RTC says Mon Feb 29 .* 2044, '
}
