import type { BehaviourChange } from '../../src/simulator/settings.ts';

/** Behaviours of servers as the simulator has them, but for algorithm and qop. */
export const serverProfiles: Readonly<Record<string, BehaviourChange>> = {
  'Spring Security': { staleFlag: 'after-digest' },
  Tomcat: {
    opaque: true,
    requireMatchingOpaque: true,
    bindNonceToAddress: true,
    nc: 'window',
    staleFlag: 'after-digest',
  },
  Jetty: { nc: 'window', staleFlag: 'always' },
  'Apache httpd': {
    requireMatchingOpaque: true,
    uriMismatchStatus: 400,
    rspauth: 'right',
    staleFlag: 'after-digest',
  },
  'Apache httpd, one-time nonces': {
    requireMatchingOpaque: true,
    oneTimeNonces: true,
    nextnonce: 'always',
    rspauth: 'right',
  },
  lighttpd: { uriMismatchStatus: 400, staleFlag: 'always' },
  'nginx module': { maxNonceUses: 20, nc: 'window', rspauth: 'right' },
  Squid: { nc: 'rising', refusedNcKillsNonce: true, maxNonceUses: 50 },
  'Flask-HTTPAuth': { opaque: true, requireMatchingOpaque: true, requireCookie: true, staleFlag: 'never' },
  'one-time nonces, next not named': { oneTimeNonces: true },
};
