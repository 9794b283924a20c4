#!/bin/sh
# Installs the servers and clients that the tests meet for real.
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
need radosgw radosgw
need ceph-mon ceph-mon
need ceph-osd ceph-osd
need ceph ceph-common
need rsyslogd rsyslog
need /usr/lib/*/rsyslog/lmnsd_ossl.so rsyslog-openssl
need strace strace
need prlimit util-linux
need fakeroot fakeroot
need flock util-linux
need mkfs.ext4 e2fsprogs
need mount mount
need stress-ng stress-ng
need /usr/lib/*/faketime/libfaketime.so.1 libfaketime
need prometheus prometheus
need docker-compose docker-compose
need podman podman
need runc runc
need systemd-analyze systemd
need chromium chromium
need unzip unzip
need zsh zsh
need fish fish
need mandoc mandoc
need /usr/lib/python3/dist-packages/yaml python3-yaml
need /usr/lib/python3/dist-packages/requests python3-requests
need ruby ruby
need /usr/share/rubygems-integration/all/specifications/webrick-*.gemspec ruby-webrick
need /usr/lib/python3/dist-packages/cherrypy python3-cherrypy3
need /usr/lib/python3/dist-packages/twisted python3-twisted
need /usr/lib/python3/dist-packages/flask_httpauth.py python3-flask-httpauth
need /usr/share/java/tomcat10-embed-core.jar libtomcat10-embed-java
need javac default-jdk-headless
need mcs mono-mcs
need /usr/lib/mono/4.5/System.Net.Http.dll libmono-system-net-http4.0-cil
need nginx nginx-light
need script bsdutils

[ -n "$missing" ] || exit 0
# shellcheck disable=SC2086 # one word for each package
exec sh "$(dirname "$0")/install-packages.sh" 'The tests need' $missing
