#!/bin/sh
# Puts programs and the libraries that they load into a folder that becomes the root of an image:
#   program-files.sh FOLDER PROGRAM...
set -eu
cd "$1"
shift

mkdir -p etc tmp usr/bin usr/lib usr/lib64
chmod 755 . etc usr usr/*
chmod 1777 tmp
for name in bin lib lib64; do [ -L "$name" ] || ln -s "usr/$name" "$name"; done
# Without it the C library asks DNS before /etc/hosts.
echo 'hosts: files dns' >etc/nsswitch.conf

for program; do
  path=$(command -v "$program")
  # A static program has no libraries, and ldd fails for it.
  libraries=$(ldd "$path" 2>/dev/null | grep -o '/[^ ]*' || true)
  # shellcheck disable=SC2086 # one word for each library
  [ -z "$libraries" ] || cp --parents -L $libraries .
  cp -L "$path" "usr/bin/$(basename "$path")"
done
# Native modules load parts of the C library that the programs do not.
libc=$(ldd "$(command -v sh)" | grep -o '/[^ ]*/libc\.so\.[0-9]*')
for name in rt dl m pthread resolv util; do cp --parents -L "${libc%/*}/lib$name".so.[0-9] .; done
chmod -R a+rX .
