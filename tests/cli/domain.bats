#!/usr/bin/env bats
# Machines that libvirt knows: run by their name at a real libvirtd, and given back to it.
load helper

# A libvirtd of this file's own, with its files in a directory that is not longer than a socket's name may be. It is
# that of a session: of another user, where we are root.
setup_file() {
    cd "$(mktemp -d /tmp/ditto-libvirt-XXXXXX)" || return 1
    mkdir home run
    local -a as=()
    if [ "$(id -u)" = 0 ]; then
        as=(setpriv --reuid=65534 --regid=65534 --clear-groups)
        chmod 711 .
        chown 65534:65534 home run
    fi
    chmod 700 home run
    "${as[@]}" env -i PATH="$PATH:/usr/sbin" HOME="$PWD/home" XDG_RUNTIME_DIR="$PWD/run" \
        XDG_CONFIG_HOME="$PWD/home/config" XDG_CACHE_HOME="$PWD/home/cache" \
        libvirtd --timeout 600 >libvirtd.out 2>&1 3>&- &
    export LIBVIRTD=$! LIBVIRT_DIR=$PWD
    export URI="qemu+unix:///session?socket=$PWD/run/libvirt/libvirt-sock"
    local _
    for _ in {1..300}; do
        ! virsh -q -c "$URI" version >version.out 2>&1 || return 0
        sleep 0.1
    done
    cat libvirtd.out version.out >&2
    return 1
}

teardown_file() {
    [ -n "${LIBVIRT_DIR:-}" ] || return 0
    kill "$LIBVIRTD" 2>/dev/null || true
    wait "$LIBVIRTD" 2>/dev/null || true
    rm -rf "$LIBVIRT_DIR"
}

# domain_xml NAME MORE DEVICES: a domain that is run under emulation, as there is no KVM for libvirt's QEMU here.
domain_xml() {
    cat <<END
<domain type='qemu'>
  <name>$1</name>
  <memory unit='MiB'>64</memory>
  <vcpu>1</vcpu>
  $2
  <devices>$3</devices>
</domain>
END
}

# define FILE: libvirt knows the domain in there from now on.
define() {
    virsh -q -c "$URI" define "$1"
}

HVM="<os><type arch='x86_64'>hvm</type></os>"
hello_os() {
    echo "<os><type arch='x86_64'>hvm</type><kernel>$HELLO_ELF</kernel><cmdline>from=libvirt</cmdline></os>"
}

@test "a domain by its name: recorded, verified, and given back" {
    qemu-img create -q -f qcow2 -b "$IMAGE" -F raw deb.qcow2
    sha256sum "$IMAGE" deb.qcow2 >before
    domain_xml deb "$HVM<cpu mode='host-model'/>" "
        <disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='$PWD/deb.qcow2'/>
            <target dev='sda' bus='sata'/></disk>
        <interface type='user'><mac address='52:54:00:aa:bb:cc'/><model type='virtio'/></interface>
        <serial type='pty'/>
        <graphics type='vnc'/>" | sed 's/>64</>256</' >deb.xml
    define deb.xml
    seconds=240 ditto 0 run --record --domain deb --connect "$URI" --append ditto.script=hello
    grep -q 'hello from ditto' <<<"$output"
    grep -qF "deb is taken as: dittovm run --memory 256M --cpus 1 --disk $PWD/deb.qcow2,format=qcow2 --net user,mac=52:54:00:aa:bb:cc" <<<"$stderr"
    grep -q 'domain deb: the nearest that there is: disk sda of sata: virtio' <<<"$stderr"
    grep -q 'domain deb: not carried over: .*CPU host-model.*graphics (vnc)' <<<"$stderr"
    sha256sum --quiet -c before
    ditto 0 verify deb.ditto
    ditto 0 info deb.ditto
    grep -q '  domain        deb, UUID [0-9a-f-]*$' <<<"$output"
    ditto 0 info --json deb.ditto
    jq -e '.domain.name == "deb" and .nics[0].mac == "52:54:00:aa:bb:cc"' <<<"$output"

    ditto 0 domain deb.ditto
    grep -q 'not carried over: .*graphics (vnc)' <<<"$stderr"
    echo "$output" >back.xml
    grep -q 'type="qcow2"' back.xml
    virt-xml-validate back.xml
    define back.xml
    virsh -q -c "$URI" dumpxml deb-ditto | grep -q "mac address='52:54:00:aa:bb:cc'"
    virsh -q -c "$URI" dumpxml deb | grep -q vnc # which is as it was
}

@test "a domain that boots a kernel; what is given beside it comes first" {
    head -c 1M /dev/zero >one.img
    head -c 1M /dev/zero >two.img
    domain_xml hello "$(hello_os)" "
        <disk type='file' device='cdrom'><source file='$PWD/two.img'/><target dev='sdb' bus='sata'/></disk>
        <disk type='file' device='disk'><source file='$PWD/one.img'/><target dev='vda' bus='virtio'/></disk>" >hello.xml
    ditto 0 run -o a.ditto --json --domain ./hello.xml
    jq -Rec 'fromjson? | .domain | .name == "hello" and (.left | index("machine pc") == null)' <<<"$stderr"
    grep -qF "one.img,format=raw --disk $PWD/two.img,ro,format=raw" <<<"$stderr"
    ditto 0 verify a.ditto
    ditto 0 info --json a.ditto
    jq -e '(.boot.command_line | endswith(" from=libvirt")) and .machine.memory == 67108864 and (.disks | length) == 2' <<<"$output"
    ditto 0 domain --type kvm --name again a.ditto
    echo "$output" >back.xml
    virt-xml-validate back.xml
    grep -q '<domain type="kvm">' back.xml
    grep -q '<name>again</name>' back.xml
    grep -qF "<kernel>$HELLO_ELF</kernel>" back.xml
    grep -q '<cmdline>console=ttyS0 from=libvirt</cmdline>' back.xml
    # There and back again.
    sed -i 's/type="kvm"/type="qemu"/' back.xml
    define back.xml
    ditto 0 run --quiet -o b.ditto --domain again --connect "$URI" --memory 32M --append more --disk two.img,ro
    ditto 0 info --json b.ditto
    jq -e '(.boot.command_line | endswith(" from=libvirt more")) and .machine.memory == 33554432 and (.disks | length) == 3' <<<"$output"
}

@test "a volume of a storage pool" {
    mkdir "$LIBVIRT_DIR/home/pool"
    head -c 1M /dev/zero >"$LIBVIRT_DIR/home/pool/vol.img"
    [ "$(id -u)" != 0 ] || chown -R 65534:65534 "$LIBVIRT_DIR/home/pool"
    virsh -q -c "$URI" pool-create-as pool dir --target "$LIBVIRT_DIR/home/pool"
    domain_xml volume "$(hello_os)" "<disk type='volume' device='disk'><source pool='pool' volume='vol.img'/>
        <target dev='vda' bus='virtio'/></disk>" >volume.xml
    define volume.xml
    ditto 0 run --domain volume --connect "$URI"
    grep -qF -- "--disk $LIBVIRT_DIR/home/pool/vol.img,format=raw" <<<"$stderr"
    ditto 1 run --domain ./volume.xml
    one_error "is a volume of a storage pool.*give the domain's name"
    virsh -q -c "$URI" pool-destroy pool
    ditto 1 run --domain volume --connect "$URI"
    one_error 'disk vda cannot be found: volume vol.img of pool pool'
}

@test "what libvirt knows beside a domain's XML: its networks, a state that it saved" {
    echo "<network><name>alone</name><bridge name='ditto-none'/><ip address='10.77.0.1' netmask='255.255.255.0'/></network>" >alone.xml
    virsh -q -c "$URI" net-define alone.xml
    domain_xml alone "$(hello_os)" "<interface type='network'><mac address='52:54:00:00:00:01'/>
        <source network='alone'/><model type='virtio'/></interface>" >domain.xml
    define domain.xml
    ditto 0 run --domain alone --connect "$URI"
    grep -qF -- '--net user,restrict=on,mac=52:54:00:00:00:01' <<<"$stderr"
    grep -q 'NIC 0 of network alone: --net user,restrict=on' <<<"$stderr"

    # As libvirt would, where root may.
    if [ "$(id -u)" = 0 ] && ip link add ditto-lv type bridge 2>/dev/null; then
        echo "<network><name>there</name><forward mode='bridge'/><bridge name='ditto-lv'/></network>" >there.xml
        virsh -q -c "$URI" net-define there.xml
        sed 's/alone/there/' domain.xml >there.xml
        define there.xml
        status=0
        ditto 0 run --domain there --connect "$URI" || status=$?
        ip link del ditto-lv
        [ $status = 0 ]
        grep -qF -- '--net bridge:ditto-lv,mac=52:54:00:00:00:01' <<<"$stderr"
    fi

    domain_xml saved "$HVM" "" >saved.xml
    define saved.xml
    virsh -q -c "$URI" start saved
    virsh -q -c "$URI" managedsave saved
    ditto 0 run --domain saved --connect "$URI" --kernel "$HELLO_ELF"
    grep -q 'not carried over: .*the state that libvirt saved' <<<"$stderr"
}

@test "domains that cannot be had, one line each" {
    ditto 1 run --record --domain nosuch --connect "$URI"
    one_error "has no domain 'nosuch'"
    domain_xml busy "$HVM" "" >busy.xml
    define busy.xml
    virsh -q -c "$URI" start busy
    ditto 1 run --record --domain busy --connect "$URI"
    one_error 'domain busy is running'
    ditto 1 run --record --domain "$(virsh -q -c "$URI" domuuid busy)" --connect "$URI"
    one_error 'is running'
    virsh -q -c "$URI" destroy busy
    ditto 1 run --record --domain busy --connect "$URI"
    one_error 'domain busy has neither a disk nor a kernel'

    ditto 1 run --domain busy --connect "qemu+unix:///session?socket=$PWD/nobody"
    one_error 'libvirt does not answer at .*is libvirtd running'
    ditto 1 run --domain busy --connect qemu+ssh://elsewhere/system
    one_error 'on another machine'
    ditto 2 run --domain busy --connect "$URI" some.img
    one_error 'a domain has its disks'
    ditto 2 run --connect "$URI" some.img
    one_error '--connect goes with --domain'
    ditto 2 run --from some.ditto --domain busy
    one_error '--domain makes no sense with --from'

    # Without the library: its place is taken by an empty file.
    mkdir lib && : >lib/libvirt.so.0
    LD_LIBRARY_PATH=$PWD/lib ditto 1 run --domain busy
    one_error "apt-get install libvirt0"
    nothing_written busy.xml lib/libvirt.so.0
}

@test "files that are no domain's XML, one line each" {
    ditto 1 run --domain ./nosuch.xml
    one_error 'cannot open ./nosuch.xml'
    echo text >text.xml
    ditto 1 run --domain text.xml
    one_error 'text.xml is not XML: line 1'
    : >empty.xml
    ditto 1 run --domain empty.xml
    one_error 'empty.xml is empty'
    echo '<network><name>x</name></network>' >network.xml
    ditto 1 run --domain network.xml
    one_error 'is no domain: it begins with <network>'
    head -c 2M /dev/zero >large.xml
    ditto 1 run --domain large.xml
    one_error 'large.xml is too large'
    printf '<!DOCTYPE d [<!ENTITY a "b">]>\n<domain type="kvm"><name>&a;</name></domain>\n' >entity.xml
    ditto 1 run --domain entity.xml
    one_error 'neither zero bytes nor a DOCTYPE'
    domain_xml net "$(hello_os)" "<disk type='network' device='disk'><source protocol='rbd' name='pool/image'/>
        <target dev='vda' bus='virtio'/></disk>" >net.xml
    ditto 1 run --domain ./net.xml
    one_error 'disk vda is neither a file nor a block device of this host but of type network'
    domain_xml gone "$(hello_os)" "<disk type='file' device='disk'><source file='$PWD/gone.img'/>
        <target dev='vda' bus='virtio'/></disk>" >gone.xml
    ditto 1 run --domain ./gone.xml
    one_error 'cannot open .*gone.img'
    mkdir lib && : >lib/libxml2.so.2
    LD_LIBRARY_PATH=$PWD/lib ditto 1 run --domain net.xml
    one_error "apt-get install libxml2"
    ditto 65 domain text.xml
    one_error 'text.xml'
    ditto 2 domain --type xen text.xml
    one_error 'kvm or qemu'
}
