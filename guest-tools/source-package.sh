#!/bin/sh
# source-package.sh SUITE PACKAGE DIR [OPTION]: fetches the files of one of Debian's source packages into DIR, which
# is made anew; an option is one of `apt-get source`, as --tar-only. Apt is given lists of its own, as most machines
# have none of source packages; it compares the files with what Debian has signed. What it says is in DIR/log.
# Needs: apt-get, Debian's keys.
set -eu
suite=$1 package=$2 option=${4:-}
rm -rf "$3"
mkdir -p "$3/lists/partial"
cd "$3"
echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $suite main" \
    >sources.list
for step in update "--download-only $option source $package"; do
    # shellcheck disable=SC2086 # its words
    apt-get -qq -o Dir::Etc::SourceList="$PWD/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::State::Lists="$PWD/lists" $step >log 2>&1
done
