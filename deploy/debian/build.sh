#!/bin/sh
# Makes a Debian package of the tarball of `npm pack`, with the production dependencies that package-lock.json names:
#
#     npm pack && sh deploy/debian/build.sh digest-gateway-0.1.0.tgz
#
# It goes into the current folder. The same tarball gives the same bytes with the same dpkg-deb. DEBFULLNAME and DEBEMAIL name the maintainer.
set -eu
umask 022
tarball=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
# The time that npm gives to the files of every tarball.
: "${SOURCE_DATE_EPOCH:=499162500}"
export SOURCE_DATE_EPOCH

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"
lib=$root/usr/lib/digest-gateway
doc=$root/usr/share/doc/digest-gateway
man=$root/usr/share/man/man1
units=$root/usr/lib/systemd/system
etc=$root/etc/digest-gateway
mkdir -p "$lib" "$doc" "$man" "$units" "$etc/secrets" "$root/usr/bin" "$root/DEBIAN"

tar -xzf "$tarball" -C "$lib" --strip-components=1 --no-same-owner
cp "$here/../../package-lock.json" "$lib"
(cd "$lib" && npm ci --omit=dev --ignore-scripts --no-audit --no-fund --silent)
rm "$lib/package-lock.json" "$lib/node_modules/.package-lock.json"
# npm makes links to the programs of dependencies, which nobody calls.
rm -rf "$lib/node_modules/.bin"

ln -s ../lib/digest-gateway/dist/cli/digest-gateway.js "$root/usr/bin/digest-gateway"
sed -e '1,/^\[Unit\]/{/^#/d}' \
  -e 's|/usr/lib/node_modules/|/usr/lib/|' \
  -e 's|^LoadCredential=.*|&\nLoadCredential=audit-key:/etc/digest-gateway/secrets/audit-key|' \
  "$lib/deploy/systemd/digest-gateway.service" >"$units/digest-gateway.service"
cp "$here/gateway.yaml" "$etc"
gzip -9n <"$lib/docs/digest-gateway.1" >"$man/digest-gateway.1.gz"
gzip -9n <"$lib/CHANGELOG.md" >"$doc/changelog.gz"
cat >"$doc/copyright" <<EOF
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/

Files: *
Copyright: the digest-gateway authors
License: Apache-2.0
 On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.
Comment: /usr/lib/digest-gateway/docs/licences.md lists the licences of the packages in
 /usr/lib/digest-gateway/node_modules, which are beside them.
EOF

find "$root" -type d -exec chmod 755 {} +
find "$root" -type f -exec chmod 644 {} +
chmod 755 "$lib/dist/cli/digest-gateway.js"
chmod 700 "$etc/secrets"

# Kibibytes of the files alone: a folder has another size on another file system.
size=$(find "$root" -type f -printf '%s\n' | awk '{ n += int(($1 + 1023) / 1024) } END { print n }')
version=$(node --print 'require(process.argv[1]).version' "$lib/package.json")
cat >"$root/DEBIAN/control" <<EOF
Package: digest-gateway
Version: $version
Architecture: all
Maintainer: ${DEBFULLNAME:-digest-gateway} <${DEBEMAIL:-root@localhost}>
Installed-Size: $size
Depends: nodejs (>= 24)
Recommends: systemd
Section: web
Priority: optional
Description: HTTP Digest for clients that cannot
 A gateway that holds credentials of web APIs, answers their Digest challenges
 for internal applications, and records who asked for what.
EOF
echo /etc/digest-gateway/gateway.yaml >"$root/DEBIAN/conffiles"
(cd "$root" && find usr etc -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
for script in postinst prerm postrm; do
  install -m 755 "$here/$script" "$root/DEBIAN/$script"
done
find "$root" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
dpkg-deb --root-owner-group --build "$root" "digest-gateway_${version}_all.deb"
