# Recordings that are none, or are no longer what was recorded: exit status 65.
load helper

# refused FILE TEXT: every command refuses the file in this way.
refused() {
    for command in info dump replay verify snapshot order; do
        ditto 65 $command "$1"
        one_error "$2"
    done
}

@test "not a recording" {
    echo 'something else entirely' >other
    : >empty
    refused other 'not a dittovm recording'
    refused empty ''
}

@test "a recording of another version" {
    small_recording other.ditto
    printf '\377' | dd of=other.ditto bs=1 seek=8 conv=notrunc status=none
    head -c 28 other.ditto | crc32_le | dd of=other.ditto bs=1 seek=28 conv=notrunc status=none
    refused other.ditto 'version 255'
}

@test "a recording that was cut off" {
    small_recording whole.ditto
    size=$(stat -c %s whole.ditto)
    for length in 10 32 40 $((size / 4)); do
        head -c "$length" whole.ditto >cut.ditto
        refused cut.ditto ''
    done
    # Without its last byte it is one whose recorder was killed; it is never taken for complete.
    head -c $((size - 1)) whole.ditto >cut.ditto
    ditto 0 info cut.ditto
    [[ $output == *'the recorder was killed'* ]]
}

@test "300 random bit flips are all found, under the sanitizers" {
    [ -x "$ASAN_DITTO" ] || skip "there is no sanitizer build (make asan)"
    small_recording whole.ditto
    size=$(stat -c %s whole.ditto)
    RANDOM=300
    for flip in $(seq 300); do
        at=$(((RANDOM * 32768 + RANDOM) % size))
        bit=$((RANDOM % 8))
        cp whole.ditto flipped.ditto
        byte=$(od -An -tu1 -j $at -N 1 whole.ditto)
        printf "\\x$(printf %x $((byte ^ 1 << bit)))" |
            dd of=flipped.ditto bs=1 seek=$at conv=notrunc status=none
        run --separate-stderr bounded 20 "$ASAN_DITTO" info flipped.ditto
        if [ "$status" = 65 ] && [[ $stderr != *Sanitizer* ]]; then
            continue
        fi
        # The end mark (its header and 184 bytes) is last: a torn one is what a kill leaves behind.
        if [ "$status" = 0 ] && [ $at -ge $((size - 208)) ] &&
            [[ $output == *'the recorder was killed'* ]]; then
            continue
        fi
        echo "flip $flip, bit $bit of byte $at of $size: exit status $status"
        echo "$output$stderr"
        cp flipped.ditto "flip-$flip.ditto"
        false
    done
    rm flipped.ditto
}
