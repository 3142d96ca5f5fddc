# Sourced by the image builders. A partition table in 82 bytes needs no fdisk.

# le32 NUMBER: its four bytes, least significant first.
le32() {
    for shift in 0 8 16 24; do
        printf '%b' "$(printf '\\0%03o' $(($1 >> shift & 255)))"
    done
}

# write_partition_table IMAGE MIB START: an MBR for an image of MIB mebibytes with one active Linux
# partition from sector START to the end, without CHS addresses.
write_partition_table() {
    {
        le32 $((0xd1770f11)) # disk signature
        printf '\0\0\200\376\377\377\203\376\377\377'
        le32 "$3"
        le32 $(($2 * 2048 - $3))
    } | dd of="$1" bs=1 seek=440 conv=notrunc status=none
    printf '\125\252' | dd of="$1" bs=1 seek=510 conv=notrunc status=none
}
