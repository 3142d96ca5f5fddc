#!/bin/bash
# vmx.sh [SUITE...]: what of the tests runs on KVM for Intel CPUs, in the emulated Intel host: doctor, step, oracle,
# breakpoints, guests (those of list.cfg with a `file`), or guests/NAME. Each is a start of the host. Writes what
# they write; the exit status is 1 when one fails.
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
    local path
    for path in "$DITTO" "$TOOLS"/{ditto_server,in_host,step_oracle,breakpoints,breakpoint_ends} "$BUILD/guests" \
        "$tree"/tests/{lib,guests,oracle.sh} bash env timeout mktemp awk grep sed tr tail cp mv rm mkdir mkfifo; do
        with+=(--with "$path")
    done
    bash "$BUILD/khost/vmx/run.sh" "${with[@]}" "$@" | tr -d '\r'
    [ "${PIPESTATUS[0]}" = 0 ] || status=1
}

[ $# -gt 0 ] || set -- doctor step breakpoints oracle guests
for suite; do
    echo "# $suite"
    case $suite in
    doctor) in_vmx "$DITTO" doctor ;;
    step) in_vmx "$TOOLS/step_oracle" 1000 ;;
    breakpoints) in_vmx "$TOOLS/breakpoints" ;;
    oracle) in_vmx bash "$tree/tests/oracle.sh" ;;
    guests) in_vmx env OF=file PATIENCE=10 bash "$tree/tests/guests/run.sh" ;;
    guests/*) in_vmx env PATIENCE=10 bash "$tree/tests/guests/run.sh" "${suite#guests/}" ;;
    *)
        echo "vmx.sh: there is no suite '$suite'" >&2
        exit 2
        ;;
    esac
done
exit $status
