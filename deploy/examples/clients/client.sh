#!/bin/sh
# Asks the gateway for authors with curl: sh client.sh
set -eu
gateway=${GATEWAY:-http://127.0.0.1:8080}
key=${API_KEY:-demo-reporting-key}

# --retry sends the request again after 429 and 503, when Retry-After says so. --fail-with-body ends with 22 for an
# error, whose JSON is printed. The header comes from stdin, so that no list of processes shows the key.
printf 'X-Api-Key: %s\n' "$key" | curl --silent --show-error --fail-with-body --retry 5 --max-time 120 \
  --header @- --get \
  --data-urlencode "ids='DEMO-2026-0001'" \
  --data-urlencode 'site_name=demo' \
  "$gateway/api/manuscripts/v2/submissions/full/contributors/authors/submissionids"
