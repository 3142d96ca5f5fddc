# Order logs of accesses to shared memory; no machine is needed.
load helper

# column LOG N: of the log's line of the table in $output.
column() {
    awk -v name="$1" -v column="$2" '$1 == name { print $column }' <<<"$output"
}

@test "order logs of a trace" {
    "$BUILD/tools/access_trace" vcpus=4 accesses=5000 objects=8 loads=750 transitions=1 >trace
    ditto 0 order --trace trace
    [ -z "$stderr" ]
    [[ $output =~ ^$(wc -l <trace)' accesses of 4 vCPUs to 8 objects: '$(grep -c load trace)' loads, '$(grep -c store trace)' stores' ]]
    for log in ditto leap jarec dejavu levels; do
        [ "$(column $log 2)" -gt 1000 ]
    done
    [ $((3 * $(column ditto 4))) -lt "$(column leap 4)" ]
    [ "$(column levels 4)" -lt "$(column ditto 4)" ]
    # Alone each vCPU has a quarter of them to do.
    [[ $(column ditto 6) < $(column leap 6) && $(column leap 6) < $(column dejavu 6) ]]
}

@test "the same from standard input, as JSON and out of a recording" {
    arguments=(vcpus=3 accesses=2000 objects=4 seed=7)
    "$BUILD/tools/access_trace" "${arguments[@]}" >trace
    "$BUILD/tools/access_trace" "${arguments[@]}" recording=run.ditto
    ditto 0 order --trace trace
    table=$output
    ditto 0 order run.ditto
    [ "$output" = "$table" ]
    run bounded 60 "$DITTO" order --trace - <trace
    [ "$status" = 0 ]
    [ "$output" = "$table" ]
    ditto 0 order --json --trace trace
    [[ $output == '{'*'"accesses": 6000,'*'"objects": 4,'*'"vcpus": 3'*'}' ]]
    json=$output output=$table
    for log in ditto leap jarec dejavu levels; do
        grep -A 3 "\"bytes\": $(column $log 4)," <<<"$json" | grep -q "\"log\": \"$log\""
    done
}

@test "a trace with more objects than are kept" {
    seq 4194305 | sed 's/^/0 store /' >many
    ditto 1 order --trace many
    one_error 'many has more than 4194304 objects'
    rm many
}

@test "traces and recordings without an order" {
    echo '0 store one' >trace
    ditto 1 order --trace trace
    one_error 'trace, line 1: an access is .VCPU load|store OBJECT \[POINT\]'
    : >trace
    ditto 1 order --trace trace
    one_error 'trace holds no accesses'
    ditto 1 order --trace nosuch
    one_error 'cannot open nosuch.*No such file'
    ditto 1 order "$SHARED/small.ditto"
    one_error 'has one CPU'
    ditto 2 order --trace
    ditto 2 order --trace trace "$SHARED/small.ditto"
    one_error 'one recording, or --trace alone'
}
