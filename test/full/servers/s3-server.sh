#!/bin/sh
# Runs a Ceph cluster of one monitor and one store in memory, with its S3 gateway, until SIGTERM:
# s3-server.sh FOLDER MONITOR-PORT S3-PORT ACCESS-KEY SECRET
set -eu
folder=$1 monitor=$2 port=$3 access=$4 secret=$5
id=2e4b5b0a-2f55-4f0e-8d3b-1b7a4f3c9a10
store=4b5d2f1c-9b1e-4e1f-8f43-5a2a59ea0c2b
export CEPH_CONF="$folder/ceph.conf"
cat >"$CEPH_CONF" <<EOF
[global]
fsid = $id
mon host = [v2:127.0.0.1:$monitor]
public network = 127.0.0.0/8
run dir = $folder
log file = $folder/\$name.log
admin socket = $folder/\$name.asok
keyring = $folder/keyring
mon data = $folder/mon
mon allow pool size one = true
mon max pg per osd = 1000
mon data avail crit = 0
osd data = $folder/osd
osd objectstore = memstore
memstore device bytes = 1073741824
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd crush chooseleaf type = 0
osd class load list = *
osd class default list = *
rgw data = $folder/rgw
rgw rados pool pg num min = 1
rgw thread pool size = 16
[osd]
public addr = 127.0.0.1
cluster addr = 127.0.0.1
EOF
mkdir "$folder/mon" "$folder/osd" "$folder/rgw"
ceph-authtool --create-keyring "$folder/keyring" >/dev/null
for name in mon. client.admin osd.0; do
  ceph-authtool "$folder/keyring" --gen-key -n "$name" --cap mon 'allow *' --cap osd 'allow *'
done
monmaptool --create --fsid "$id" --addv a "[v2:127.0.0.1:$monitor]" "$folder/monmap" >/dev/null
ceph-mon --mkfs -i a --monmap "$folder/monmap" --keyring "$folder/keyring"

running=''
trap 'kill -9 $running; exit 0' TERM
ceph-mon -f -i a & running="$running $!"
ceph osd new "$store" >/dev/null
ceph-osd -i 0 --mkfs --osd-uuid "$store"
ceph-osd -f -i 0 & running="$running $!"
radosgw-admin user create --uid test --display-name test --access-key "$access" --secret-key "$secret" >/dev/null
radosgw -f -n client.admin --rgw-frontends "beast endpoint=127.0.0.1:$port" & running="$running $!"
wait
