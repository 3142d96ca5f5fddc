# shellcheck shell=bash
# suite.sh: packages of any release of Debian, by lists of apt's that are its own, in $BUILD/cache. Sourced behind
# common.sh.

# of_suite SUITE COMMAND...: of apt
of_suite() {
    local lists=$BUILD/cache/apt-$1
    "$2" -o Dir::Etc::SourceList="$lists/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::State::Lists="$lists/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= "${@:3}"
}

# suite_update SUITE
suite_update() {
    local lists=$BUILD/cache/apt-$1
    mkdir -p "$lists/lists/partial"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $1 main" \
        >"$lists/sources.list"
    of_suite "$1" apt-get -qq update 2>"$lists/log"
}

# suite_download SUITE DIRECTORY PACKAGE...
suite_download() {
    mkdir -p "$2"
    (cd "$2" && of_suite "$1" apt-get -qq download "${@:3}" 2>log)
}

# suite_kernel SUITE FLAVOUR: the package that linux-image-FLAVOUR stands for there, once its lists are
suite_kernel() {
    of_suite "$1" apt-cache depends "linux-image-$2" 2>/dev/null |
        sed -n 's/^ *Depends: \(linux-image-[0-9][^ ]*\)$/\1/p' | head -n 1
}

# suite_root SUITE PACKAGE PROGRAM: a directory with that program and all that it needs, in $root, and what runs it by
# the libraries there, in $in_root; as root the first time
suite_root() {
    root=$BUILD/cache/$1-$2
    in_root=("$root/lib64/ld-linux-x86-64.so.2" --library-path "$root/usr/lib/x86_64-linux-gnu" "$root/usr/bin/$3")
    [ ! -x "$root/usr/bin/$3" ] || return 0
    command -v debootstrap >/dev/null && [ "$(id -u)" = 0 ] || {
        echo "# $2 of $1: install debootstrap, and be root"
        return 1
    }
    rm -rf "$root"
    debootstrap --variant=minbase --include="$2" "$1" "$root" >"$root.log" 2>&1
    local fetched=$?
    umount -q "$root"/{proc,sys} # which it leaves
    return $fetched
}
