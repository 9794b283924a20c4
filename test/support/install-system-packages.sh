#!/bin/sh
# Installs what system-packages.txt lists and this machine lacks, then prints what is there. Where it cannot install, the
# tests that need a package do not run, and the end of the run lists them; with CI set they fail.
#   sh test/support/install-system-packages.sh
set -eu
PATH="$PATH:/usr/sbin:/sbin"
cd "$(dirname "$0")"

missing_packages() {
  grep -v '^#' system-packages.txt | while read -r package place; do
    # shellcheck disable=SC2086 # a place may be a pattern
    command -v "$place" >/dev/null 2>&1 || [ -e "$(echo $place)" ] || echo "$package"
  done
}

missing=$(missing_packages)
if [ -n "$missing" ]; then
  # shellcheck disable=SC2086 # one word for each package
  sh install-packages.sh 'The tests need' $missing || true
  missing=$(missing_packages)
fi
echo "System packages of the tests: $(grep -vc '^#' system-packages.txt) known, $(echo $missing | wc -w) missing" >&2
for package in $missing; do
  echo "  missing: $package (apt-get install --no-install-recommends $package)" >&2
done
