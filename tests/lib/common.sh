# shellcheck shell=bash
# What the shell tests share. Sourced; expects the source tree as $tree, and $LIST where the list of guests
# is another one.
DITTO=${DITTO:-$tree/dittovm}
ASAN_DITTO=${ASAN_DITTO:-$tree/build-asan/dittovm}
BUILD=${BUILD:-$tree/build}
IMAGE=${IMAGE:-$BUILD/guest/small.img}
FAILED=$BUILD/failed
LIST=${LIST:-$tree/tests/guests/list.cfg}

# bounded SECONDS COMMAND...: 124 when it takes longer; killed if it does not end then either.
bounded() {
    local seconds=$1
    shift
    timeout --kill-after=10 "$seconds" "$@"
}

# ditto_start: once, before ditto_bounded. Without the tool (tests/tools/ditto_server.c) that is `bounded`.
ditto_start() {
    ditto_server=''
    [ "$DITTO" = "$tree/dittovm" ] && [ -x "$BUILD/tools/ditto_server" ] || return 0
    coproc DITTO_SERVER { exec "$BUILD/tools/ditto_server"; }
    # Other numbers: a coprocess's own are closed in subshells.
    exec {ditto_requests}>&"${DITTO_SERVER[1]}" {ditto_answers}<&"${DITTO_SERVER[0]}"
    ditto_server=1
}

# ditto_bounded SECONDS OUT ERR ARGUMENT...: dittovm, with its output in two files; 124 when it takes longer.
ditto_bounded() {
    local seconds=$1 out=$2 err=$3 status
    shift 3
    if [ -n "$ditto_server" ]; then
        printf '%s\0' $(($# + 3)) "$seconds" "$out" "$err" "$@" >&"$ditto_requests"
        read -r status <&"$ditto_answers" || status=127
        return "$status"
    fi
    bounded "$seconds" "$DITTO" "$@" >"$out" 2>"$err" </dev/null
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

# setting GUEST KEY DEFAULT: what the list says of a guest.
setting() {
    printf '%s\n' "${listed[$1 $2]:-$3}"
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
