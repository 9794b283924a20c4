#!/bin/sh
# Installs the servers and clients that the tests meet for real. Where apt is missing it says what to install.
set -eu

missing=''
need() { # program, Debian package
  PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}
need apache2 apache2
need lighttpd lighttpd
need curl curl
need openssl openssl

[ -n "$missing" ] || exit 0
if ! command -v apt-get >/dev/null 2>&1; then
  echo "The tests need these programs (Debian's names):$missing. Install them and run again." >&2
  exit 1
fi
as_root=''
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null 2>&1 || {
    echo "The tests need:$missing. Run as root: apt-get install$missing" >&2
    exit 1
  }
  as_root='sudo'
fi
echo "Installing for the tests:$missing" >&2
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -qq
# The packages' own services stay off: the tests start their own, on free ports.
# shellcheck disable=SC2086
$as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends $missing >/dev/null
