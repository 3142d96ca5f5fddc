#!/bin/bash
# litmus.sh [--tap] [N [PROGRAM...]]: N recordings (default 3) of each program of
# guest-tools/litmus/list.cfg, or of those named, with each of its numbers of CPUs, in random turns or
# quanta (--chaos; a seed each), and their replays, which must be identical and show the same output; with
# SMP=crew one more with --parallel. One line a recording, then a table of what came out. Exit status 1 when
# one diverged or came out as it may not; those recordings are kept in build/failed. `SEED` is the first seed,
# `CPUS` the numbers of CPUs, `SMP` uni (default) or crew, `LEVEL` the CPL that the programs work at (default
# 3), BRIEF=1 has them do less, `SECONDS_MAX` bounds each step.
#
# --tap: N recordings of each program in all, its numbers of CPUs in turn; TAP, no table.
#
# All of it runs in one emulated host, where one is needed.
set -u
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
LIST=$tree/guest-tools/litmus/list.cfg
. "$tree/tests/lib/common.sh"

# parameters PROGRAM
parameters() {
    local append
    append=$(setting "$1" append '')
    [ -z "${BRIEF:-}" ] || append=$(setting "$1" brief "$append")
    echo "$append"
}

# said FILE: sets $outcome to what a program says on the console.
said() {
    local line
    outcome=''
    while IFS= read -r line; do
        line=${line%$'\r'}
        [[ $line != 'litmus '* ]] || outcome=${line#litmus }
    done <"$1"
}

# one PROGRAM CPUS SEED: records and replays; sets $result to ok or to what went wrong.
one() {
    local status expect
    local -a args
    read -ra args <<<"--smp ${SMP:-uni} $(setting "$1" args '--grace 1')"
    : >replay.err
    ditto_bounded "$limit" run.out run.err run --json --force -o run.ditto --memory 32M --cpus "$2" \
        --chaos "$3" "${args[@]}" \
        --append "cpus=$2 user=$((${LEVEL:-3} == 3)) $(parameters "$1")" \
        --kernel "$BUILD/litmus/$(setting "$1" file "$1").elf"
    status=$?
    said run.out
    [ $status = 0 ] || { result="recording failed ($status): $(tail -n 1 run.err)" && return; }
    # What was recorded is replayed in any case.
    result=ok
    expect=$(setting "$1" expect '[a-z0-9+-]* (passed|failed):.*')
    [[ $outcome =~ ^($expect)$ ]] || result="it says '$outcome', not '$expect'"
    ditto_bounded "$limit" replay.out replay.err replay --json run.ditto
    status=$?
    case $status in
    0) same_text run.out replay.out || result='the replay shows other output' ;;
    3) result="DIVERGED: $(grep 'dittovm: the replay' replay.err)" ;;
    124 | 137) result="the replay took more than $limit s" ;;
    *) result="replay: status $status: $(tail -n 1 replay.err)" ;;
    esac
    [ "$result" = ok ] && [ "${SMP:-uni}" = crew ] || return 0
    ditto_bounded "$limit" replay.out replay.err verify --parallel run.ditto ||
        result="verify --parallel: status $?: $(grep 'dittovm: the replay' replay.err || tail -n 1 replay.err)"
}

# round PROGRAM CPUS: one more recording, and a line of it in the file `results`.
round() {
    number=$((number + 1))
    one "$1" "$2" "$seed"
    forced=$(json_field forced run.err)
    printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$1" "$2" "$seed" "$forced" "$result" "$outcome" >>results
    if [ -n "$tap" ]; then
        [ "$result" = ok ] || printf 'not '
        echo "ok $number - litmus $1, $2 CPUs: $outcome"
    else
        printf '%4d %s CPUs, seed %-6d %5s forced  %s  %s\n' $number "$2" "$seed" "$forced" "$result" \
            "${outcome:-$1}"
    fi
    if [ "$result" != ok ]; then
        echo "# $result"
        commented run.err replay.err
        mv run.ditto "failed-litmus-$1-$2-$seed.ditto" 2>/dev/null
    fi
    seed=$((seed + 1))
}

# table: of the file `results`: for each program and number of CPUs, what came out and, for each of
# its counts that was not always the same, the least and the most.
table() {
    echo
    echo '| program | CPUs | recordings | identical | passed | failed | orders | forced | spread |'
    echo '|---|---|---|---|---|---|---|---|---|'
    awk -F'\t' '
        function spread(row,    i, text) {
            for (i = 1; i <= keys[row]; i++) {
                name = key[row, i]
                if (n[row, name] < total[row]) # it is 0 where it is not said
                    least[row, name] = 0
                if (least[row, name] != most[row, name])
                    text = text (text ? ", " : "") name " " least[row, name] "-" most[row, name]
            }
            return text
        }
        {
            row = $1 SUBSEP $2
            if (!(row in total))
                rows[++count] = row
            total[row]++
            identical[row] += $5 == "ok"
            forced[row] += $4
            fields = split($6, word, " ")
            passed[row] += word[2] == "passed:"
            failed[row] += word[2] == "failed:"
            for (i = 3; i <= fields; i++) {
                split(word[i], pair, "=")
                if (pair[1] == "order") {
                    orders[row] += !((row, pair[2]) in seen)
                    seen[row, pair[2]] = 1
                    continue
                }
                if (!((row, pair[1]) in n))
                    key[row, ++keys[row]] = pair[1]
                n[row, pair[1]]++
                value = pair[2] + 0
                if (n[row, pair[1]] == 1 || value < least[row, pair[1]])
                    least[row, pair[1]] = value
                if (n[row, pair[1]] == 1 || value > most[row, pair[1]])
                    most[row, pair[1]] = value
            }
        }
        END {
            for (i = 1; i <= count; i++) {
                row = rows[i]
                split(row, part, SUBSEP)
                printf "| %s | %s | %d | %d | %d | %d | %d | %.0f | %s |\n", part[1], part[2],
                    total[row], identical[row], passed[row], failed[row], orders[row],
                    forced[row] / total[row], spread(row)
            }
        }' results
}

tap=''
[ "${1:-}" != --tap ] || { tap=1 && shift; }
rounds=${1:-3}
[ $# = 0 ] || shift
if [ $# = 0 ]; then
    # shellcheck disable=SC2046 # names are words
    set -- $(guests)
fi
for program; do
    [ -n "$(setting "$program" cpus '')" ] && continue
    echo "litmus: list.cfg has no program '$program'" >&2
    exit 2
done
work=$(mktemp -d "$BUILD/litmus-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
[ -d "${DITTO_DATADIR:-}" ] || export DITTO_DATADIR=$BUILD/khost
ditto_start
seed=${SEED:-$((RANDOM + 1))} limit=${SECONDS_MAX:-120} number=0
if [ -n "$tap" ]; then
    echo "1..$(($# * rounds))"
    for turn in $(seq "$rounds"); do
        place=0
        for program; do
            read -ra cpus <<<"${CPUS:-$(setting "$program" cpus 2)}"
            round "$program" "${cpus[$(((turn + place++) % ${#cpus[@]}))]}"
        done
    done
else
    for program; do
        for cpus in ${CPUS:-$(setting "$program" cpus 2)}; do
            for _ in $(seq "$rounds"); do
                round "$program" "$cpus"
            done
        done
    done
fi
for recording in failed-*.ditto; do
    name=${recording#failed-}
    keep_failed "$recording" "${name%.ditto}"
done
bad=$(awk -F'\t' '$5 != "ok"' results | wc -l)
if [ -z "$tap" ]; then
    table
    echo "$(wc -l <results) recordings, $(grep -c $'\tDIVERGED' results) diverged," \
        "$((bad - $(grep -c $'\tDIVERGED' results))) failed otherwise"
fi
[ "$bad" = 0 ]
