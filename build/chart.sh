#!/bin/sh
# Copies alerts and dashboard into the Helm chart, which can read only its own folder.
set -eu
cd "$(dirname "$0")/../deploy"
mkdir -p helm/digest-gateway/files
cp prometheus/alerts.yml helm/digest-gateway/files/alerts.yml
cp grafana/digest-gateway.json helm/digest-gateway/files/dashboard.json
