#!/bin/bash
# rooms.sh: the rule of rooms.mk is kept by the compiler, and no cycle grows inside a room. Writes TAP.
set -u
tree=$(cd "$(dirname "$0")/.." && pwd)
. "$tree/tests/lib/common.sh"
cd "$tree" || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0

# say WHETHER WHAT
say() {
    number=$((number + 1))
    [ "$1" = 0 ] && echo "ok $number $2" || echo "not ok $number $2"
}

rooms=$(make -s -f - show <<<$'include rooms.mk\nshow:\n\t@echo $(ROOMS)')

read -rd '' -a upward <<'END'
mmu/walk.c recording/reader.h
recording/codec.c vmm/kvm/vcpu.h
devices/pc.c vmm/kvm/vcpu.h
boot/kernel_code.c vmm/kvm/vcpu.h
vmm/kvm/vm.c vmm/points/annex.h
vmm/points/breakpoint_means.c host/doctor/doctor.h
recorder/recorder.c vmm/machine/machine.h
replay/player.c devices/pc.h
replay/timeline.c recorder/recorder.h
replay/gdb/gdb_server.c replay/live/live.h
vmm/machine/machine.c replay/player.h
replay/live/live.c cli/run_options.h
host/domain/domain.c host/host.h
host/host.c cli/command.h
END
# What make compiles these files with.
changed=()
objects=()
for ((i = 0; i < ${#upward[@]}; i += 2)); do
    changed+=(-W "${upward[i]}")
    objects+=("build/${upward[i]%.c}.o")
done
commands=$(make -n "${changed[@]}" V=1 "${objects[@]}")

# compile FILE TEXT: FILE, had it this text.
compile() {
    local command
    command=$(sed -n "s#^\(.*\) -MMD .* $1\$#\1#p" <<<"$commands")
    [[ $command == *' -iquote '* && $command != *' -I'* ]] || return 2
    echo "$2" >"$work/file.c" # not from stdin: the compiler would look into this directory
    $command -fsyntax-only "$work/file.c"
}

# An include upward fails, and for no other reason: the same file compiles without it.
failed=0
for ((i = 0; i < ${#upward[@]}; i += 2)); do
    file=${upward[i]} header=${upward[i + 1]}
    message=$(compile "$file" "#include \"$header\"" 2>&1)
    [ $? = 1 ] && [[ $message == *"$header: No such file"* ]] && [ -f "$header" ] &&
        compile "$file" '#include "base/err.h"' 2>/dev/null || failed=1
done
say $failed 'an include upward does not compile'

[ -z "$(git grep -lE '^#include "\.' -- '*.c' '*.h')" ] # it would lead around the rule
say $? 'no include is relative'

# A header can be included alone.
alone=0
for room in $rooms; do
    for header in "$room"/*.h; do
        echo "#include \"$header\"" >"$work/header.c"
        ${CC:-cc} -std=c11 -D_GNU_SOURCE -iquote "build/rooms/$room/links" -fsyntax-only "$work/header.c" || alone=1
    done
done
say $alone 'each header can be included alone'

# cyclic ROOM: its units (NAME.c with NAME.h) that include each other in a circle.
cyclic() {
    local file
    for file in "$1"/*.[ch]; do
        sed -n "s#^\#include \"$1/\([a-z0-9_]*\)\.h\".*#\1#p" "$file" | sed "s#^#$(basename "${file%.*}") #"
    done | awk '
        $1 != $2 { edge[$1, $2] = 1; unit[$1] = unit[$2] = 1 }
        END {
            do {
                removed = 0
                for (u in unit) {
                    out = into = 0
                    for (e in edge) {
                        split(e, end, SUBSEP)
                        if (!(end[1] in unit) || !(end[2] in unit))
                            continue
                        out += end[1] == u
                        into += end[2] == u
                    }
                    if (!out || !into) {
                        delete unit[u]
                        removed = 1
                    }
                }
            } while (removed)
            for (u in unit)
                print u
        }' | sort | tr '\n' ' '
}

# Those that there are, which should become fewer.
declare -A known=(
    [mmu]='digest page_sums '
    [recording]='block_table reader '
    [devices]='apic_bus ioapic lapic pit pit_channel '
    [vmm/kvm]='cr4 vcpu '
    [vmm/points]='breakpoint entry_count fingerprint repeat stepper watchpoint '
    [vmm/points/trace]='trace trace_code '
    [vmm/machine]='code_watch kexec machine schedule '
    [vmm/machine/crew]='crew crew_inside '
    [replay]='player player_inside '
    [replay/gdb]='gdb_server gdb_session '
)
for room in $rooms; do
    now=$(cyclic "$room")
    [ "$now" = "${known[$room]:-}" ]
    say $? "no new cycle in $room"
    [ "$now" = "${known[$room]:-}" ] || echo "# in a circle: $now; known: ${known[$room]:-none}"
done

# No folder holds more than a quarter of the code, nor more than 40 files; no file has over 700 lines.
large=0
for room in $rooms; do
    files=$(find "$room" -maxdepth 1 -name '*.[ch]' | wc -l)
    [ "$files" -le 40 ] || { large=1; echo "# $room has $files files"; }
done
while read -r lines file; do
    [ "$lines" -le 700 ] || { large=1; echo "# $file has $lines lines"; }
done < <(for room in $rooms; do wc -l "$room"/*.[ch]; done | grep -v ' total$')
say $large 'no folder has more than 40 files, no file more than 700 lines'

# clang-format puts the braces of a function, and of nothing else that has lines, at the beginning of a line.
long=0
while read -r lines where; do
    [ "$lines" -le 70 ] || { long=1; echo "# $where has $lines lines"; }
done < <(git ls-files -z '*.c' | xargs -0 awk '
    /^[a-z].*\(/ { name = $0 }
    /^\{/ { began = FNR }
    /^\}/ && began { print FNR - began + 1, FILENAME ": " name; began = 0 }')
say $long 'no function has more than 70 lines'
# The walks of ARCHITECTURE.md: FILE COUNT for each file, what is in square brackets not counted; FILE FUNCTION for
# each one that stands in parentheses behind its file.
walked() {
    awk -v RS= '
    /^## / { inside = /^## Walks/; next }
    !inside || !/^\*/ { next }
    {
        gsub(/\n/, " ")
        walk++; count = within = aside = 0; file = ""
        while (match($0, /[][()]|`[^`]*`/)) {
            token = substr($0, RSTART, RLENGTH)
            $0 = substr($0, RSTART + RLENGTH)
            within += token == "("
            within -= token == ")"
            aside += token == "["
            aside -= token == "]"
            gsub(/`/, "", token)
            if (token ~ /^[a-z0-9_\/]+\.c$/) {
                base = token
                sub(/.*\//, "", base)
                if (token ~ /\//)
                    path[base] = token
                if (!aside && !((walk, base) in seen)) {
                    seen[walk, base] = 1
                    count++
                }
                if (!aside)
                    file = path[base]
                print (base in path ? path[base] : base), count
            } else if (token ~ /\(\)$/ && within && !aside)
                print file, substr(token, 1, length(token) - 2)
        }
    }' ARCHITECTURE.md
}
astray=0 found=0
while read -r file what; do
    found=$((found + 1))
    case $what in
    [0-9]*) [ -n "$(git ls-files -- "$file" ":(glob)**/$file")" ] && [ "$what" -le 6 ] ;;
    *) grep -q "^[a-z].*\\b$what(" "$file" ;;
    esac || { astray=1; echo "# $file: $what"; }
done < <(walked)
[ $found -gt 50 ] || astray=1
say $astray 'each walk of ARCHITECTURE.md has at most six files, and the functions are in them'
echo "1..$number"
