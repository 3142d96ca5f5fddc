# What a recorder cannot make exact, it says, and the recording does.
load helper

# but_for_the_cpu: $output of info without what is said of an emulated CPU's flags, which is not the guest's fault.
but_for_the_cpu() {
    grep -v 'unsure  *this emulated CPU \(loses the flags\|notices a\)' <<<"$output" || true
}

@test "an exact recording has nothing that was left to chance" {
    ditto 0 info "$SHARED/small.ditto"
    [[ $(but_for_the_cpu) != *unsure* ]]
}

# What a QEMU's CPU may lack; all else of it is KVM's and the kernel's, and is there. On a busy host the guest that is
# to be kicked may not have run yet.
MAY_LACK="debug register at|int3 at|RDTSC at CPL0|FNSTENV's|SETcc to|RCL of|CMPXCHG16B with|a write that a guest's DR7|RF in|branch counter|kick by a signal"

@test "doctor finds what there is in the emulated host" {
    run bounded 120 "$DITTO" --host emulated doctor
    echo "$output"
    [ "$(grep -cE '  ok  ' <<<"$output")" -ge 20 ]
    [ -z "$(grep -E '  (missing|broken)  ' <<<"$output" | grep -vE "^($MAY_LACK)")" ]
}

# With Debian's QEMU and with the one of `make khost-qemu`: doctor knows which it is.
@test "a CPU that executes programs wrongly" {
    run bounded 120 "$DITTO" --host emulated doctor
    grep -E 'SETcc to a page that is not there  *(ok|missing)' <<<"$output"
    grep -E 'RCL of a page that is not there  *(ok|missing)' <<<"$output"
    grep -E 'CMPXCHG16B with an exit behind it  *(ok|missing)' <<<"$output"
    grep -E "a write that a guest's DR7 watches  *(ok|missing)" <<<"$output"
    grep -E "RF in the frames of faults  *(ok|missing)" <<<"$output"
    if ! grep -E "(SETcc to a|RCL of a|CMPXCHG16B with|a guest's DR7).*  missing" <<<"$output"; then
        ditto 0 info --json "$SHARED/small.ditto"
        [[ $output == *'"unsure": []'* ]]
        return
    fi
    local doubt='this emulated CPU (loses the flags|notices a)'
    grep -E "the replay may diverge: $doubt" "$SHARED/small.err"
    ditto 0 info --json "$SHARED/small.ditto"
    [[ $output =~ '"unsure": ['.*$doubt ]]
}

# A host of AMD's executes RDRAND whatever CPUID says, and so does this one.
@test "a CPU that executes what CPUID hides" {
    local data=${DITTO_DATADIR:-$BUILD/khost} qemu
    qemu=$data/qemu-system-x86_64
    [ -x "$qemu" ] || qemu=qemu-system-x86_64
    mkdir amd
    ln -s "$data"/khost-* amd/
    printf '#!/bin/bash\nexec %s "${@/,-rdrand,-rdseed/}"\n' "$qemu" >amd/qemu-system-x86_64
    chmod +x amd/qemu-system-x86_64
    DITTO_DATADIR=$PWD/amd bounded 120 "$DITTO" --host emulated run -o leaks.ditto --memory 32M \
        --kernel "$BUILD/guests/rdrand.elf" >leaks.out 2>leaks.err
    grep 'sum [0-9]' leaks.out
    ditto 0 info leaks.ditto
    [[ $output == *'not recorded  what a program gets of RDRAND, RDSEED, which CPUID hides'* ]]
    ditto 0 info --json leaks.ditto
    [[ $output == *'"executes": "RDRAND, RDSEED"'* ]]
    # It is what it says: the replay has no such instruction.
    ditto 3 verify leaks.ditto
    ditto 0 info "$SHARED/small.ditto"
    [[ $output != *'not recorded'* ]]
}

@test "kernel code that is found late" {
    ditto 0 run --memory 32M -o late.ditto --kernel "$BUILD/guests/late-code.elf"
    [[ $stderr == *'the replay may diverge: RDTSC in kernel code at 0xffffffffc0000000 was found only after'* ]]
    ditto 0 info late.ditto
    [[ $output == *'unsure  '*'RDTSC in kernel code at 0xffffffffc0000000 was'* ]]
    ditto 0 verify late.ditto
}

@test "more that looks like RDTSC than is looked at at once" {
    ditto 0 run --memory 32M -o bait.ditto --kernel "$BUILD/guests/late-code.elf" --append bait=1
    [[ $stderr == *'so much in the kernel'*' looks like RDTSC that not all of it was looked at in time'* ]]
    [[ $stderr == *'RDTSC in kernel code at 0xffffffffc0006000 was found only after'* ]]
    ditto 0 verify bait.ditto
    rm bait.ditto
}

@test "hypercalls, which KVM answers by itself" {
    ditto 0 run --memory 32M -o call.ditto --kernel "$BUILD/guests/hypercall.elf"
    [[ $output == *'answer '*'time '* ]]
    [[ $stderr == *'the replay may diverge: the guest has made hypercalls (VMCALL), 1 by now, which KVM answers by itself'* ]]
    ditto 0 info call.ditto
    [[ $output == *'unsure '*'the guest has made hypercalls'* ]]
    rm call.ditto
}

@test "forced points, where all memory that was written is compared, are no doubt" {
    ditto 0 run --memory 32M -o few.ditto --kernel "$BUILD/guests/nested-loop.elf" --append 'pages=1 ticks=10'
    ditto 0 info few.ditto
    [[ $(but_for_the_cpu) != *unsure* ]]
    # Nor where nothing is recorded.
    ditto 0 run --memory 32M --kernel "$BUILD/guests/nested-loop.elf" --append 'pages=1 ticks=10'
    [[ $stderr == *' forced'* && $stderr != *', 0 forced'* && $stderr != *'may diverge'* ]]
}

@test "a kernel that is not understood" {
    # Its table of symbols is found by the tokens for digits.
    perl -0777 -pe 's/0\x001\x002\x003\x004\x00/0\x001\x002\x003\x003\x00/g' "$BUILD/khost/khost-vmlinux" >strange
    ditto 1 run -o strange.ditto --kernel strange
    one_error 'cannot be recorded exactly: .*kallsyms.*--unsure'
    [ ! -e strange.ditto ]
    # It finds no root file system, and panics.
    ditto 0 run --unsure -o strange.ditto --kernel strange --append panic=-1
    [[ $stderr == *'the replay may diverge: the kernel'* ]]
    ditto 0 info strange.ditto
    [[ $output == *'unsure        the kernel'*kallsyms* ]]
    ditto 0 verify strange.ditto
}
