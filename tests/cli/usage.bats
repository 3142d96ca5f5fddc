# The command line, without any machine.
load helper

@test "help of dittovm and of every command" {
    ditto 0 --help
    [[ $output == usage:* ]]
    for command in run replay verify snapshot disk core domain ctl info dump pcap symbols order doctor version; do
        [[ $output == *"  $command"* ]]
    done
    for command in run replay verify snapshot disk core domain ctl info dump pcap symbols order doctor version; do
        ditto 0 $command --help
        [[ $output == "usage: dittovm $command"* ]]
        [ -z "$stderr" ]
    done
}

@test "the manual page is what --help says" {
    ditto 0 --man
    [ "$output" = "$(<"$tree/docs/dittovm.1")" ] || {
        echo "make docs/dittovm.1"
        false
    }
}

@test "version" {
    ditto 0 version
    [[ $output =~ ^dittovm\ [0-9.]+\ \(recording\ format\ [0-9]+\)$ ]]
    ditto 0 --version
}

@test "no command, an unknown command, an unknown option: exit status 2" {
    ditto 2
    [[ $stderr == usage:* ]]
    ditto 2 nosuch
    one_error "no command 'nosuch'"
    for command in run replay verify snapshot disk core domain ctl info dump pcap symbols order doctor version; do
        ditto 2 $command --nosuch
        one_error $command
    done
    ditto 2 -x
}

@test "missing and excess arguments: exit status 2" {
    ditto 2 run
    ditto 2 run a.img b.img
    ditto 2 run --initrd i a.img
    ditto 2 run --memory
    for command in replay verify snapshot disk info dump pcap symbols order; do
        ditto 2 $command
        ditto 2 $command a b
    done
    nothing_written
}

@test "values out of range: exit status 2 and nothing written" {
    for arguments in '--memory x' '--memory 512G' '--memory 1T' '--memory 0' '--memory 1K' '--memory 3M' '--cpus 0' \
        '--cpus 99' '--grace -1' '--grace 99999' '--digest-every x' '--host nowhere'; do
        ditto 2 run -o out.ditto --kernel "$HELLO_ELF" $arguments
        one_error ''
    done
    ditto 2 replay --to x y.ditto
    ditto 2 dump --from -1 y.ditto
    nothing_written
}

@test "an option for the host may stand anywhere" {
    ditto 2 run --host
    ditto 0 version --host=native
    ditto 0 --host emulated info --help
}
