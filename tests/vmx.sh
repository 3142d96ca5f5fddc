#!/bin/bash
# vmx.sh [SUITE...]: what of the tests runs on KVM for Intel CPUs, in the emulated Intel host: doctor, step, oracle,
# breakpoints, guests (those of list.cfg with a `file`), or guests/NAME; gdb; linux (a boot, recorded and verified);
# golden (tests/golden verified); moves (recordings of tiny guests and of a boot, made in one of the two emulated hosts
# and verified in the other). Each is some starts of the host. Writes what they write; the exit status is 1 when one
# fails.
set -u
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$tree/tests/lib/common.sh"
work=$(mktemp -d "$BUILD/vmx-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
status=0

# in_vmx COMMAND...: in the host, where the tests' files and the programs that they need are.
in_vmx() {
    local -a with=(--memory 2048)
    while [ "$1" = --with ]; do
        with+=("${@:1:2}")
        shift 2
    done
    local path
    for path in "$DITTO" "$BUILD/guests" \
        "$TOOLS"/{ditto_server,in_host,step_oracle,breakpoints,breakpoint_ends,process_replay} \
        "$tree"/tests/{lib,guests,oracle.sh} bash env timeout mktemp awk grep sed tr tail cp mv rm mkdir mkfifo; do
        with+=(--with "$path")
    done
    bounded 7200 bash "$BUILD/khost/vmx/run.sh" "${with[@]}" "$@" | tr -d '\r'
    [ "${PIPESTATUS[0]}" = 0 ] && return
    status=1
    return 1
}

# on HOST OUT COMMAND...: dittovm there, with its output in a file, which is shown when it fails.
on() {
    local host=$1 out=$2
    shift 2
    bounded 1800 "$DITTO" --host "$host" "$@" >"$out" 2>&1 || { commented "$out" && false; }
}

# tell TEXT: the last command's success as a test.
number=0
tell() {
    local failed=$?
    number=$((number + 1))
    [ $failed = 0 ] && echo "ok $number $1" && return
    echo "not ok $number $1"
    status=1
    return 1
}

# record HOST GUEST: GUEST of list.cfg, or linux, in HOST-GUEST.ditto.
record() {
    local -a machine
    machine_of "$2"
    on "$1" recorded run --quiet --record --force -o "$1-$2.ditto" "${machine[@]}"
}

# What moves from one vendor's CPU to the other's: landings in user and kernel code, through memory, faults.
moves() {
    local guest
    if [ ! -x "$BUILD/khost/qemu-system-x86_64" ]; then
        echo 'ok 1 moves # SKIP QEMU 7.2 sets RF in no frame: make khost-qemu'
        return
    fi
    for guest in count-user hidden-counter many-pages faults smp-count linux; do
        record emulated "$guest" && on vmx verified verify "emulated-$guest.ditto"
        tell "recorded on AMD, verified on Intel: $guest"
        record vmx "$guest" && on emulated verified verify "vmx-$guest.ditto"
        tell "recorded on Intel, verified on AMD: $guest"
    done
}

golden() {
    cat >golden.sh <<EOT
status=0
for golden in "$tree"/tests/golden/*.ditto; do
    case \$golden in *-rdtsc-*) echo "# \${golden##*/} is of a CPU whose frames have no RF" && continue ;; esac
    "$DITTO" verify "\$golden" 2>&1 || status=1
done
exit \$status
EOT
    in_vmx --with "$tree/tests/golden" --with golden.sh bash golden.sh
    tell 'golden recordings'
}

# As in docs/gdb.md: back from a word to the instruction that wrote it, by a stock gdb.
walk_back() {
    cat >walk-back.sh <<EOT
"$DITTO" run --quiet --record -o c.ditto --memory 32M --kernel "$BUILD/guests/corrupt.elf" || exit
unset DITTO_INSIDE # which says that gdb is outside
"$DITTO" replay --gdb=unix:here c.ditto &
trap "kill \$!" EXIT
until [ -S here ]; do kill -0 \$! || exit; sleep 1; done
gdb -nx -batch -ex 'set remotetimeout 100' -ex 'target remote here' -ex continue \\
    -ex 'watch ((unsigned long *)&shared)[512]' -ex reverse-continue -ex 'x/i \$pc' -ex 'info registers rdi' \\
    -ex reverse-stepi -ex stepi -ex kill "$BUILD/guests/corrupt.elf"
EOT
    in_vmx --with gdb --with /usr/lib/python3.11 --with /usr/share/gdb --with walk-back.sh \
        bash walk-back.sh >gdb.out 2>&1
    grep -q 'New value = 1000' gdb.out && grep -q '=> .*<store.*mov ' gdb.out &&
        grep -q 'rdi  *0x200 ' gdb.out && ! grep -q diverged gdb.out
    tell 'gdb walks back from a corrupted word to the instruction that wrote it' || commented gdb.out
}

[ $# -gt 0 ] || set -- doctor step breakpoints oracle gdb golden linux moves guests
for suite; do
    echo "# $suite"
    case $suite in
    doctor) in_vmx "$DITTO" doctor ;;
    step) in_vmx "$TOOLS/step_oracle" 1000 ;;
    breakpoints) in_vmx "$TOOLS/breakpoints" ;;
    oracle) in_vmx bash "$tree/tests/oracle.sh" ;;
    gdb) walk_back ;;
    golden) golden ;;
    linux)
        record vmx linux && on vmx verified verify --json vmx-linux.ditto
        tell 'Linux boots, recorded and verified'
        echo "# sync points: $(json_field syncs verified), landings: $(json_field landings verified)"
        ;;
    moves) moves ;;
    guests) in_vmx env OF=file PATIENCE=10 bash "$tree/tests/guests/run.sh" ;;
    guests/*) in_vmx env PATIENCE=10 bash "$tree/tests/guests/run.sh" "${suite#guests/}" ;;
    *)
        echo "vmx.sh: there is no suite '$suite'" >&2
        exit 2
        ;;
    esac
done
exit $status
