#!/bin/bash
# hosts.sh [KERNEL/QEMU...]: the emulated KVM host with other kernels and other QEMUs than its own: doctor, the golden
# recordings verified, and a few guests recorded there and verified, there and with the usual kernel, and the other way.
# KERNEL: a release of Debian. QEMU: debian (the one in PATH), ours (`make khost-qemu`), or a release of Debian whose
# package is unpacked in a directory of its own. Default: all kernels with debian and ours, and bookworm's with the
# others. Kernels are fetched once, into build/hosts; packages of QEMU into build/cache, as root (debootstrap).
# Writes TAP, and what doctor found missing or broken as comments.
set -u
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$tree/tests/lib/common.sh"
. "$tree/tests/lib/suite.sh"
guests='count-user hidden-counter many-pages faults smp-count linux'
hosts=$BUILD/hosts
number=0 status=0
mkdir -p "$hosts/debian"
ln -sf "$BUILD"/khost/khost-{vmlinux,initrd.cpio} "$hosts/debian"
work=$(mktemp -d "$hosts/work-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

# tell STATUS TEXT
tell() {
    number=$((number + 1))
    [ "$1" = 0 ] && echo "ok $number $2" && return
    echo "not ok $number $2"
    status=1
}

# make_host KERNEL QEMU: a directory of the emulated host's files, in $host.
make_host() {
    host=$hosts/$1-$2
    "$tree/guest-tools/khost/build.sh" "$hosts/kernel-$1" "$1" || return
    mkdir -p "$host"
    ln -sf "$hosts/kernel-$1"/khost-{vmlinux,initrd.cpio} "$host"
    rm -f "$host/qemu-system-x86_64"
    case $2 in
    debian) ;;
    ours) ln -s "$BUILD/khost/qemu-system-x86_64" "$host" ;;
    *)
        suite_root "$2" qemu-system-x86 qemu-system-x86_64 || return
        cat >"$host/qemu-system-x86_64" <<EOT
#!/bin/sh
exec ${in_root[@]@Q} -L "$root/usr/share/qemu" -L "$root/usr/share/seabios" "\$@"
EOT
        chmod +x "$host/qemu-system-x86_64"
        ;;
    esac
}

# Within one host: each golden recording but those of a CPU whose frames have no RF, and those of crews where doctor says
# that there can be none.
golden() {
    local without='*-rdtsc-*'
    ! grep -q '^page ownership  *missing' doctor.out || without+='|*-crew-*'
    cat >golden.sh <<EOT
status=0
for golden in "$tree"/tests/golden/*.ditto; do
    case \$golden in $without) continue ;; esac
    "$DITTO" verify "\$golden" || status=1
done
exit \$status
EOT
    DITTO_DATADIR=$host bounded 1800 "$TOOLS/in_host" bash golden.sh >golden.out 2>&1 ||
        { commented golden.out && false; }
}

# on DIRECTORY COMMAND...: dittovm, in the host whose files are there; its output is shown when it fails.
on() {
    local datadir=$1
    shift
    DITTO_DATADIR=$datadir bounded 600 "$DITTO" "$1" --host emulated "${@:2}" >out 2>&1 || { commented out && false; }
}

# record GUEST DIRECTORY FILE: a guest of list.cfg, or linux.
record() {
    local -a machine
    machine_of "$1"
    on "$2" run --quiet --record --force -o "$3" "${machine[@]}"
}

# tried GUEST: recorded and verified there; and, where frames have RF where it is usual, recorded there and verified with
# the usual kernel, and the other way. Debian's QEMU 7.2 sets RF in no frame: what it recorded moves to such a one.
tried() {
    local usual=$BUILD/khost
    [ "${host##*-}" != debian ] || usual=$hosts/debian
    record "$1" "$host" there.ditto && on "$host" verify there.ditto || return
    [ -z "$frames_differ" ] || return 0
    on "$usual" verify there.ditto && record "$1" "$usual" here.ditto && on "$host" verify here.ditto
}

usual() {
    local kernel
    for kernel in bullseye bookworm trixie sid; do
        echo "$kernel/debian"
        [ ! -x "$BUILD/khost/qemu-system-x86_64" ] || echo "$kernel/ours"
    done
    echo bookworm/trixie
    echo bookworm/sid
}

# shellcheck disable=SC2046 # names are words
[ $# -gt 0 ] || set -- $(usual)
echo "1..$((4 * $#))"
for row; do
    echo "# $row"
    make_host "${row%/*}" "${row#*/}"
    tell $? "$row: its files"
    on "$host" doctor
    tell $? "$row: doctor"
    mv out doctor.out
    grep -E '^machine| (missing|broken) ' doctor.out | cut -c1-150 | sed 's/^/# /'
    frames_differ=$(grep '^RF in the frames of faults  *broken' doctor.out)
    if [ -n "$frames_differ" ]; then
        number=$((number + 1))
        echo "ok $number $row: golden recordings # SKIP its CPU sets RF in the frames of interrupts"
    else
        golden
        tell $? "$row: golden recordings"
    fi
    good=0
    for guest in $guests; do
        tried "$guest" || { echo "# $guest" && good=1; }
    done
    tell $good "$row: recorded and verified${frames_differ:+ there}: $guests"
done
exit $status
