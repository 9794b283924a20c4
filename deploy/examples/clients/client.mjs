// Asks the gateway for authors with fetch of Node.js: node client.mjs
import { setTimeout as delay } from 'node:timers/promises';

const gateway = process.env.GATEWAY ?? 'http://127.0.0.1:8080';
const key = process.env.API_KEY ?? 'demo-reporting-key';
const ATTEMPTS = 6;

const query = new URLSearchParams({ ids: "'DEMO-2026-0001'", site_name: 'demo' });
const url = `${gateway}/api/manuscripts/v2/submissions/full/contributors/authors/submissionids?${query}`;

/** Sends the request again after 429 and 503, when Retry-After says so. */
async function get() {
  for (let attempt = 1; ; attempt += 1) {
    const response = await fetch(url, {
      headers: { 'X-Api-Key': key },
      signal: AbortSignal.timeout(120_000),
    });
    if (attempt === ATTEMPTS || ![429, 503].includes(response.status)) return response;
    await response.body?.cancel();
    await delay(1000 * Number(response.headers.get('retry-after') ?? 1));
  }
}

const response = await get();
if (response.headers.get('content-type') === 'application/problem+json') {
  // An error of the gateway. Others, such as 404, are the upstream's own.
  const { code, detail, requestId } = await response.json();
  process.stderr.write(`${code}: ${detail} (${requestId})\n`);
  process.exitCode = 1;
} else {
  process.stdout.write(await response.text());
  if (!response.ok) process.exitCode = 1;
}
