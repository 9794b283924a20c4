#!/bin/sh
# Installs what `npm run bench` compares the gateway with: Debian's packages, and the npm packages of peers/.
set -eu
PATH="$PATH:/usr/sbin:/sbin"
here=$(dirname "$0")

missing=''
need() { # program or file, Debian package
  command -v "$1" >/dev/null 2>&1 || [ -e "$1" ] || missing="$missing $2"
}
need lighttpd lighttpd
need /usr/lib/lighttpd/mod_openssl.so lighttpd-mod-openssl
need taskset util-linux
need go golang-go
need nginx nginx
need apache2 apache2-bin
need haproxy haproxy
# shellcheck disable=SC2086 # one word for each package
[ -z "$missing" ] || sh "$here/../support/install-packages.sh" 'The benchmark needs' $missing

npm ci --prefix "$here/peers" --ignore-scripts
