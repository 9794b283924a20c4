#!/bin/sh
# Installs the servers and clients that the tests meet for real. Where apt is missing it says what to install.
set -eu
PATH="$PATH:/usr/sbin:/sbin"

missing=''
need() { # program or file, Debian package
  command -v "$1" >/dev/null 2>&1 || [ -e "$1" ] || missing="$missing $2"
}
need apache2 apache2-bin
need lighttpd lighttpd
need /usr/lib/lighttpd/mod_openssl.so lighttpd-mod-openssl
need curl curl
need openssl openssl
need redis-server redis-server
need redis-cli redis-tools
need age age
need squid squid
need haproxy haproxy
need strace strace
need prlimit util-linux
need prometheus prometheus
need docker-compose docker-compose
need systemd-analyze systemd
need chromium chromium

[ -n "$missing" ] || exit 0
if ! command -v apt-get >/dev/null 2>&1; then
  echo "The tests need these packages (Debian's names):$missing. Install them and run again." >&2
  exit 1
fi
as_root=''
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null 2>&1 || {
    echo "The tests need these packages. Run as root: apt-get install --no-install-recommends$missing" >&2
    exit 1
  }
  as_root='sudo'
fi
echo "Installing for the tests:$missing" >&2
$as_root apt-get update -qq

# The tests run the servers themselves, on free ports: the packages' own services neither start now, for
# which Debian asks policy-rc.d, nor at the next boot.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  trap '$as_root rm -f "$policy"' EXIT
  trap 'exit 1' HUP INT TERM
  printf '#!/bin/sh\nexit 101\n' | $as_root tee "$policy" >/dev/null
  $as_root chmod 755 "$policy"
fi
# shellcheck disable=SC2086 # one word for each package
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
for service in haproxy lighttpd redis-server squid prometheus; do
  case "$missing " in
  *" $service "*) $as_root update-rc.d "$service" disable ;;
  esac
done
