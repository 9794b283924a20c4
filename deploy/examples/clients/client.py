"""Asks the gateway for authors with requests: python3 client.py"""

import os
import sys

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

gateway = os.environ.get("GATEWAY", "http://127.0.0.1:8080")
key = os.environ.get("API_KEY", "demo-reporting-key")

session = requests.Session()
session.headers["X-Api-Key"] = key
# Sends the request again after 429 and 503, when Retry-After says so.
retry = Retry(total=5, status_forcelist=[429, 503], raise_on_status=False)
session.mount(gateway, HTTPAdapter(max_retries=retry))

response = session.get(
    f"{gateway}/api/manuscripts/v2/submissions/full/contributors/authors/submissionids",
    params={"ids": "'DEMO-2026-0001'", "site_name": "demo"},
    timeout=(5, 120),
)
if response.headers.get("Content-Type") == "application/problem+json":
    # An error of the gateway. Others, such as 404, are the upstream's own.
    problem = response.json()
    sys.exit(f"{problem['code']}: {problem['detail']} ({problem['requestId']})")
response.raise_for_status()
print(response.text)
