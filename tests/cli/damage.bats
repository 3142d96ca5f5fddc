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

@test "1000 random bit flips are all found, under the sanitizers" {
    local flip=$ASAN_BUILD/tools/flip_bits
    [ -x "$flip" ] || skip "there is no sanitizer build (make asan)"
    bounded 120 "$flip" "$SHARED/small.ditto" 1000
}

@test "sound files with other contents are refused, diverge or are replayed, under the sanitizers" {
    local fuzz=$ASAN_BUILD/tools/fuzz_player seed=1
    [ -x "$fuzz" ] || skip "there is no sanitizer build (make asan)"
    [ -z "${LONG:-}" ] || seed=$RANDOM
    ditto 0 run --quiet -o forced.ditto --memory 32M --kernel "$BUILD/guests/count-user.elf" --append ticks=10
    cp "$tree"/tests/golden/v1[67]-*.ditto .
    echo "seed $seed"
    ASAN_OPTIONS=detect_leaks=0 bounded_tool 900 "$fuzz" "${LONG:+5}25" \
        "$seed" ./*.ditto
}
