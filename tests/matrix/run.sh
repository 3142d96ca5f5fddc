#!/bin/bash
# run.sh [--table|--keep]: the matrix of guests (rows): records each row RECORDINGS times (default 3) and verifies each
# recording, then prints a table of their results. Exit status 1 when one is not as it should be: its recording is
# in build/failed, its messages in build/matrix/reports. ONLY names rows (shell patterns, as 'script-*'; with
# /CPUS, as 'script-sid/2').
#
# Results are kept in build/matrix/results, each with the commit that changed dittovm last: what is there of
# this commit and of this row as it is now is not done again. --keep moves them to this directory's `results`, which
# is of all machines and days, and --table prints the table of both alone, as docs/guests.md.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tree=$(cd "$here/../.." && pwd)
. "$tree/tests/lib/common.sh"
export MATRIX=$BUILD/matrix
results=$MATRIX/results

read_row() {
    local pace
    read -r row image kernel cpu_list memory seconds pace workload expect <<<"$1"
    IFS=, read -ra slow <<<"$pace"
    local program=${workload%%,*}
    # What is done, so that a result of something else is not taken for one of this; not how long it may take.
    identity=$(cat <(echo "$row $image $kernel $memory $pace $workload $expect") \
        "$here/guest/init" "$here/guest/$program" 2>/dev/null | cksum | cut -d ' ' -f 1)
    [ -n "$expect" ] || expect="matrix: $program ended with status 0"
    [ "$workload" != login ] || expect='the system is running'
}

# all_results: what is kept, and what is new.
all_results() {
    cat "$here/results" "$results"
}

rows() {
    grep -v '^#' "$here/rows"
}

# wanted CPUS: whether ONLY names the row.
wanted() {
    local pattern
    [ -n "${ONLY:-}" ] || return 0
    set -f
    for pattern in $ONLY; do
        # shellcheck disable=SC2053 # patterns
        [[ $row == $pattern || $row/$1 == $pattern ]] && set +f && return 0
    done
    set +f
    return 1
}

# kernel_file: of the row's disk, the kernel of that package.
kernel_file() {
    local file name
    for file in "$MATRIX/$image".boot/vmlinuz-*; do
        name=amd64
        [[ ! $file =~ -((cloud|rt)-amd64)$ ]] || name=${BASH_REMATCH[1]}
        [ "$name" != "$kernel" ] || echo "$file"
    done
}

# kernel_version: of the row; `-` where the disk's boot loader names it.
kernel_version() {
    local version
    version=$(kernel_file)
    version=${version##*/vmlinuz-}
    echo "${version:-$kernel}"
}

# answer SEEN TIMES LINE: types the line once the console has shown SEEN so often; gives up with the machine.
answer() {
    until [ "$(grep -aoE -- "$1" run.out | wc -l)" -ge "$2" ]; do
        kill -0 "$machine" 2>/dev/null || return
        sleep 1
    done
    echo "$3" >&3
}

# record CPUS SLOW: its exit status is dittovm's; the rest is in run.out and run.err.
record() {
    local file
    local -a what=(--json --record -o run.ditto --memory "$memory" --cpus "$1" --slow "$2")
    : >run.out
    if [ "$kernel" != - ]; then
        file=$(kernel_file)
        what+=(--kernel "$file" --initrd "${file/vmlinuz-/initrd.img-}" --append
            "root=/dev/vda rw loglevel=4 panic=-1 init=/matrix/init matrix.run=$workload")
    fi
    if [ "$workload" != login ]; then
        bounded "$seconds" "$DITTO" run "${what[@]}" "$MATRIX/$image.img" </dev/null >run.out 2>run.err
        return
    fi
    mkfifo keyboard
    bounded "$seconds" "$DITTO" run "${what[@]}" "$MATRIX/$image.img" <keyboard >run.out 2>run.err &
    machine=$!
    exec 3>keyboard
    rm keyboard
    answer 'login: ' 1 root
    answer 'assword: ' 1 ditto
    # shellcheck disable=SC2016 # the guest's shell expands it
    answer '# ' 1 'echo the system is $(systemctl is-system-running --wait); systemctl poweroff'
    exec 3>&-
    wait $machine
}

# refusal STATUS: sets $outcome.
refusal() {
    outcome=identical
    [ "$1" != 0 ] && [ "$(wc -l <run.err)" = 1 ] && grep -qE "^dittovm: .*$expect" run.err && return
    outcome="not refused as it should be ($1): $(head -n 1 run.err)"
    [ "$1" != 0 ] || outcome='not refused'
}

# once CPUS SLOW: records and verifies; sets $outcome to identical or to what is wrong.
once() {
    local status
    rm -f run.* verify.*
    record "$1" "$2"
    status=$?
    tr -d '\r' <run.out >run.text
    [ "$workload" != refused ] || { refusal $status && return; }
    outcome=identical
    case $status in
    0) grep -aqE "$expect" run.text || outcome="the guest failed: $(tail -n 1 run.text)" ;;
    124 | 137) outcome="still recording after $seconds s: $(tail -n 1 run.text)" ;;
    *) outcome="recording: status $status: $(tail -n 1 run.err)" ;;
    esac
    # What was recorded of it is verified in any case.
    bounded "$seconds" "$DITTO" verify --json run.ditto >verify.out 2>verify.err </dev/null
    status=$?
    case $status in
    0) [ "$(json_field result verify.out)" = identical ] || outcome='verify: not identical' ;;
    3) outcome="DIVERGED: $(grep -m 1 'dittovm: the replay' verify.err | sed 's/^dittovm: //')" ;;
    124 | 137) outcome="still verifying after $seconds s; $outcome" ;;
    *) outcome="verify: status $status: $(tail -n 1 verify.err)" ;;
    esac
}

# report NUMBER CPUS
report() {
    local name=$row-$2-$1
    mkdir -p "$MATRIX/reports"
    {
        echo "$name: $outcome"
        head -n 200 verify.err run.err 2>/dev/null
        echo '--- console'
        cat run.text
    } >"$MATRIX/reports/$name" 2>&1
    keep_failed run.ditto "matrix-$name"
    echo "#   messages: $MATRIX/reports/$name"
}

# do_row CPUS: what is not done yet of it.
do_row() {
    local number had
    # One that ran out of time is done again: with another limit, or on a quieter machine.
    had=$(awk -F'\t' -v commit="$commit" -v row="$row" -v cpus="$1" -v identity="$identity" \
        '$1 == commit && $2 == row && $3 == cpus && $4 == identity && $11 !~ /^still /' < <(all_results) | wc -l)
    for ((number = had + 1; number <= RECORDINGS; number++)); do
        printf '%s, %s CPUs, recording %d: ' "$row" "$1" "$number"
        once "$1" "${slow[(number - 1) % ${#slow[@]}]}"
        printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$commit" "$row" "$1" "$identity" \
            "$(date +%F)" "$(json_field seconds run.err)" "$(json_field seconds verify.out 2>/dev/null)" \
            "$(json_field syncs run.err)" "$(json_field forced run.err)" "$(json_field bytes run.err)" \
            "${outcome//$'\t'/ }" "$(kernel_version)" >>"$results"
        echo "$outcome"
        [ "$outcome" = identical ] || report "$number" "$1"
    done
}

# table: of what was found last of each row.
table() {
    local line cpus
    echo '| row | disk | kernel | CPUs | memory | workload | as it should be | sync points | forced | MB | recorded | verified | date | commit | |'
    echo '|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|'
    rows | while read -r line; do
        read_row "$line"
        for cpus in ${cpu_list//,/ }; do
            wanted "$cpus" || continue
            awk -F'\t' -v row="$row" -v cpus="$cpus" -v identity="$identity" -v image="$image" -v kernel="$(kernel_version)" -v about="$cpus | $memory | $workload" '
                $2 == row && $3 == cpus && $4 == identity {
                    if ($1 != commit)
                        n = good = 0
                    commit = $1; date = $5; n++
                    kernel = $12
                    good += $11 == "identical"
                    # Figures are of the last one.
                    recorded = $6; verified = $7; syncs = $8; forced = $9; bytes = $10
                    if ($11 != "identical" || n == 1)
                        said = $11 == "identical" ? "" : $11
                }
                END {
                    if (n == 0)
                        printf "| %s | %s | %s | %s | not run | | | | | | | | |\n", row, image, kernel, about
                    else
                        printf "| %s | %s | %s | %s | %d of %d | %s | %s | %.1f | %.0f s | %.0f s | %s | %s | %s |\n", row, image,
                            kernel, about, good, n, syncs, forced, bytes / 1e6, recorded, verified, date, commit, said
                }' < <(all_results)
        done
    done
}

mkdir -p "$MATRIX"
touch "$results"
if [ "${1:-}" = --keep ]; then
    cat "$results" >>"$here/results" && : >"$results"
    exit
fi
if [ "${1:-}" = --table ]; then
    cat <<'EOT'
# Stock guests

What `make check-guests` found when it recorded and verified the guests and workloads of `tests/matrix/rows`;
made from its results (`tests/matrix/results`) by `make docs/guests.md`. *as it should be*: how many recordings of
that commit of dittovm came to what the row asks for and were verified identical, or were refused as it says. Figures
are of the last one, in the emulated host, on a machine that had more to do; from 6c756d6 on with `--slow`, as the
row says. The last column: what was wrong. 2026-11-29's QEMU is that of `make khost-qemu`, which has become faster.

stress-all runs all 303 stressors of Debian 12's stress-ng (0.15.06) in sequence, each for a second. The classes, of
which a stressor may have several: cpu 60, cpu-cache 40, device 8, filesystem 48, interrupt 27, io 9, memory 53,
network 18, os 222, pipe 8, scheduler 45, security 1, vm 36.

EOT
    table
    exit
fi
RECORDINGS=${RECORDINGS:-3}
# All that records or verifies; not what gdb alone uses, and a probe that the doctor command alone asks.
product=(base boot cli devices host mmu recorder recording replay vmm guest-tools/khost
    ':!replay/timeline*' ':!replay/what_if.c' ':!replay/gdb' ':!host/doctor/doctor_probe_memory.c')
commit=$(git -C "$tree" log -1 --format=%h -- "${product[@]}")
git -C "$tree" diff --quiet HEAD -- "${product[@]}" || commit=$commit+
work=$(mktemp -d "$MATRIX/work-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
before=$(wc -l <"$results")
while read -r line <&4; do
    read_row "$line"
    for cpus in ${cpu_list//,/ }; do
        wanted "$cpus" || continue
        "$here/image.sh" "$image" || exit 1
        do_row "$cpus"
    done
done 4< <(rows)
table
[ -z "$(tail -n +$((before + 1)) "$results" | awk -F'\t' '$11 != "identical"')" ]
