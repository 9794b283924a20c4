/**
 * Fields of a response that a browser keeps for its origin, or takes for the word of the server it asked. From an upstream
 * they would bind the gateway's own name: `Strict-Transport-Security` its scheme, `Clear-Site-Data` its storage,
 * `Proxy-Status` its errors (RFC 9209).
 */
export const ORIGIN_FIELDS = [
  'accept-ch',
  'alt-svc',
  'clear-site-data',
  'critical-ch',
  'expect-ct',
  'nel',
  'origin-agent-cluster',
  'proxy-status',
  'public-key-pins',
  'public-key-pins-report-only',
  'report-to',
  'reporting-endpoints',
  'service-worker-allowed',
  'strict-transport-security',
] as const;
