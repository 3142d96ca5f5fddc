# shellcheck shell=bash
# What the shell tests share. Sourced; expects the source tree as $tree, and $LIST where the list of guests
# is another one.
DITTO=${DITTO:-$tree/dittovm}
ASAN_BUILD=${ASAN_BUILD:-$tree/build-asan}
BUILD=${BUILD:-$tree/build}
TOOLS=${TOOLS:-$BUILD/tools} # ditto_server's directory
IMAGE=${IMAGE:-$BUILD/guest/small.img}
FAILED=$BUILD/failed
export XDG_CACHE_HOME=${XDG_CACHE_HOME:-$BUILD/cache} # saved emulated hosts
LIST=${LIST:-$tree/tests/guests/list.cfg}

# A time limit ends what hangs; it is no test of speed. Each is what a quick machine wants, and a slow one has so many
# times as much.
export PATIENCE=${PATIENCE:-4}

# bounded SECONDS COMMAND...: 124 when it takes longer, by $PATIENCE; killed if it does not end then either.
bounded() {
    local seconds=$(($1 * PATIENCE))
    shift
    timeout --kill-after=10 "$seconds" "$@"
}

# bounded_tool SECONDS COMMAND...: the same for a program of $TOOLS, which does not find the emulated host by itself.
bounded_tool() {
    DITTO_DATADIR=${DITTO_DATADIR:-$BUILD/khost} bounded "$@"
}

# ditto_start: once, before ditto_bounded: one server for all runs of dittovm (tests/tools/ditto_server.c), in
# one emulated host, where one is needed. Its files are in ./server; what is below the current directory can be
# written. It ends with this shell, or by ditto_stop.
ditto_start() {
    [ "$DITTO" = "$tree/dittovm" ] && [ -x "$TOOLS/ditto_server" ] || return 0
    export DITTO_SERVER=$PWD/server
    mkdir "$DITTO_SERVER" && mkfifo "$DITTO_SERVER/requests" "$DITTO_SERVER/answers" || return 1
    # Both are open for as long as this shell is there, whoever opens them meanwhile.
    exec {ditto_requests}<>"$DITTO_SERVER/requests" {ditto_answers}<>"$DITTO_SERVER/answers"
    DITTO_DATADIR=${DITTO_DATADIR:-$BUILD/khost} "$BUILD/tools/in_host" --memory 1024 \
        "$TOOLS/ditto_server" <"$DITTO_SERVER/requests" >"$DITTO_SERVER/answers" \
        2>"$DITTO_SERVER/errors" 3>&- {ditto_requests}>&- {ditto_answers}>&- &
    echo $! >"$DITTO_SERVER/pid"
}

ditto_stop() {
    [ -n "${DITTO_SERVER:-}" ] || return 0
    kill "$(<"$DITTO_SERVER/pid")" 2>/dev/null || true
    wait "$(<"$DITTO_SERVER/pid")" 2>/dev/null || true
    exec {ditto_requests}>&- {ditto_answers}>&-
    unset DITTO_SERVER
}

# ditto_bounded SECONDS OUT ERR ARGUMENT...: dittovm, with its output in two files; 124 when it takes longer,
# by $PATIENCE, and was killed. Its stdin is $DITTO_IN, or empty. Without a server that is `bounded`.
ditto_bounded() {
    local seconds=$1 out=$2 err=$3 part status=
    shift 3
    if [ -z "${DITTO_SERVER:-}" ]; then
        bounded "$seconds" "$DITTO" "$@" >"$out" 2>"$err" <"${DITTO_IN:-/dev/null}"
        return
    fi
    printf '%s\0' $(($# + 5)) $((seconds * PATIENCE)) "$PWD" "${DITTO_IN:-/dev/null}" "$out" "$err" "$@" >"$DITTO_SERVER/requests"
    until read -t 10 -r part <"$DITTO_SERVER/answers"; do
        status+=$part
        kill -0 "$(<"$DITTO_SERVER/pid")" 2>/dev/null || {
            : >"$out"
            cp "$DITTO_SERVER/errors" "$err"
            return 127
        }
    done
    return "$status$part"
}

# ditto_forced SECONDS LEAST OUT ERR REC ARGUMENT...: run --json -o REC, as ditto_bounded. On a busy machine many a tick
# finds the guest in an exit, where no point is forced: where there are fewer than LEAST, it is recorded again, its clock
# half as fast as before, five times at most. Whoever wants them looks whether they came.
ditto_forced() {
    local seconds=$1 least=$2 out=$3 err=$4 rec=$5 slow status
    shift 5
    for slow in 1 2 4 8 16; do
        rm -f "$rec"
        status=0
        ditto_bounded "$seconds" "$out" "$err" run --json -o "$rec" --slow $slow "$@" || status=$?
        [ $status = 0 ] && [ "$(json_field forced "$err")" -lt "$least" ] || break
        echo "# $rec, --slow $slow: $(json_field forced "$err") forced points, not $least"
    done
    return $status
}

# snapshots_of RECORDING: the names of those with which a machine goes live.
snapshots_of() {
    "$DITTO" info "$1" 2>/dev/null | awk '/^  snapshots / { found = 1; next } found && $NF == "yes" { print $1 }'
}

# booted: sets $booted to a place where the small image's shell waits for its first line: a recording's snapshot.
# It is recorded once for all suites and each new dittovm. To the machine that goes on there, $DITTO_IN is typed.
booted() {
    local file=$BUILD/tests/booted.ditto lock work keys before machine left=$((3000 * PATIENCE))
    mkdir -p "$BUILD/tests"
    exec {lock}>"$file.lock"
    flock $lock
    if [ ! "$file" -nt "$DITTO" ] || [ ! "$file" -nt "$IMAGE" ]; then
        work=$(mktemp -d "$BUILD/tests/booting-XXXXXX") || return 1
        mkfifo "$work/keys"
        DITTO_DATADIR=${DITTO_DATADIR:-$BUILD/khost} "$DITTO" run --quiet -o "$work/booted.ditto" --checkpoint-every 5 \
            --append vsyscall=xonly "$IMAGE" <"$work/keys" >"$work/out" 2>"$work/err" 3>&- {lock}>&- &
        machine=$!
        exec {keys}>"$work/keys"
        until grep -aq '/root # ' "$work/out" || [ $((left -= 1)) = 0 ]; do
            sleep 0.1
        done
        before=$(snapshots_of "$work/booted.ditto" | wc -l)
        until [ "$(snapshots_of "$work/booted.ditto" | wc -l)" -gt "$before" ] || [ $((left -= 5)) -le 0 ]; do
            sleep 0.5
        done
        kill -TERM $machine
        if wait $machine && [ $left -gt 0 ]; then
            mv "$work/booted.ditto" "$file"
        else
            tail "$work/out" "$work/err" >&2
        fi
        exec {keys}>&-
        rm -rf "$work"
    fi
    exec {lock}>&-
    # shellcheck disable=SC2034 # of who calls this
    booted=$file@$(snapshots_of "$file" | tail -n 1)
    [ -e "$file" ]
}

# typed SCRIPT N: what to type there for the script of the image, so that it ends as if it were on the command line.
typed() {
    printf "DITTO_N=%s /usr/lib/ditto/%s; echo \"ditto: %s ended with status \$?\"; exit\n" "$2" "$1" "$1"
}

# json_field NAME FILE: the value of a number, word or text in the last JSON object on one line of the file
# that has it. Without a process, as same_text: in the emulated host each takes some 50 ms.
json_field() {
    local line value=''
    while IFS= read -r line || [ -n "$line" ]; do
        [[ $line =~ ^\{.*\"$1\":\ \"?([^\",}]*) ]] && value=${BASH_REMATCH[1]}
    done <"$2"
    [ -z "$value" ] || printf '%s\n' "$value"
}

# same_text FILE FILE: whether they are equal (and there); neither has zero bytes.
same_text() {
    local one other
    IFS= read -rd '' one <"$1"
    IFS= read -rd '' other <"$2"
    [ -e "$1" ] && [ -e "$2" ] && [ "$one" = "$other" ]
}

# free_port: a TCP port of this host's that nobody has.
free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# median: of the numbers on stdin, one a line; nothing when there are none.
median() {
    sort -g | awk '{ v[NR] = $1 } END { if (NR) print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

# What the list of guests says, by "section key", and its sections in order. It is read once, without a
# process: in the emulated host one takes as long as a small guest's run.
declare -A listed=()
declare -a sections=()
read_list() {
    local line section=''
    while IFS= read -r line; do
        case $line in
        '#'*) ;;
        '['*']')
            section=${line:1:-1}
            sections+=("$section")
            ;;
        *' = '*) listed[$section ${line%% = *}]=${line#* = } ;;
        esac
    done <"$LIST"
}
read_list

# guests: the names of the sections of the list; its head says what is in one.
guests() {
    printf '%s\n' "${sections[@]}"
}

# guests_of KEY: those that have this setting; all of them where KEY is ''.
guests_of() {
    local name
    for name in "${sections[@]}"; do
        [ -n "$1" ] && [ -z "${listed[$name $1]:-}" ] || printf '%s\n' "$name"
    done
}

# setting GUEST KEY DEFAULT: what the list says of a guest.
setting() {
    printf '%s\n' "${listed[$1 $2]:-$3}"
}

# machine_of GUEST: the arguments of `run` for a guest of the list, or for a boot of "linux", in the array $machine.
machine_of() {
    machine=(--append ditto.script=hello "$IMAGE")
    [ "$1" != linux ] || return 0
    read -ra machine <<<"$(setting "$1" args '')"
    machine+=(--memory 32M --append "$(setting "$1" append '') $(setting "$1" brief '')"
        --kernel "$BUILD/guests/$(setting "$1" file '').elf")
}

# keep_failed RECORDING NAME: puts a recording where it can be looked into, and says how.
keep_failed() {
    [ -e "$1" ] || return 0
    mkdir -p "$FAILED"
    cp -f "$1" "$FAILED/$2.ditto"
    echo "# kept: $FAILED/$2.ditto; replay it with: $DITTO replay $FAILED/$2.ditto"
}

# commented FILE...: the end of each file as TAP comments.
commented() {
    tail -n 40 "$@" 2>/dev/null | tr -d '\r' | sed 's/^/#   /'
}

# image_file PATTERN OUT: copies the file of /boot whose name fits the pattern out of the disk image.
image_file() {
    local fs="$IMAGE?offset=1048576" name
    name=$(PATH=$PATH:/sbin:/usr/sbin debugfs -R 'ls -p /boot' "$fs" 2>/dev/null |
        awk -F/ -v pattern="$1" '$6 ~ pattern { print $6 }' | tail -n 1)
    [ -n "$name" ] &&
        PATH=$PATH:/sbin:/usr/sbin debugfs -R "dump /boot/$name $2" "$fs" 2>/dev/null && [ -s "$2" ]
}
