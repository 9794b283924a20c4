#!/bin/sh
# Installs Debian packages without starting their services: install-packages.sh WHO PACKAGE...
# WHO is the subject of "… these packages". Where apt is missing it says what to install.
set -eu
who=$1
shift

if ! command -v apt-get >/dev/null 2>&1; then
  echo "$who these packages (Debian's names): $*. Install them and run again." >&2
  exit 1
fi
as_root=''
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null 2>&1 || {
    echo "$who these packages. Run as root: apt-get install --no-install-recommends $*" >&2
    exit 1
  }
  as_root='sudo'
fi
echo "$who these packages; installing: $*" >&2
$as_root apt-get update -qq

# Tests and benchmarks run the servers themselves, on free ports: the packages' own services neither start now,
# for which Debian asks policy-rc.d, nor at the next boot.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  trap '$as_root rm -f "$policy"' EXIT
  trap 'exit 1' HUP INT TERM
  printf '#!/bin/sh\nexit 101\n' | $as_root tee "$policy" >/dev/null
  $as_root chmod 755 "$policy"
fi
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
for service in haproxy lighttpd nginx redis-server squid prometheus; do
  case " $* " in
  *" $service "*) $as_root update-rc.d "$service" disable ;;
  esac
done
