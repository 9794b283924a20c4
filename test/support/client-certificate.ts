import { execFileSync } from 'node:child_process';
import { needPackages } from './system-packages.ts';

/** A key and a certificate of itself, PEM, as openssl makes them. `passphrase`: the key is encrypted. */
export function makeClientCertificate(passphrase?: string): { key: string; certificate: string } {
  needPackages('openssl');
  const guard = passphrase === undefined ? ['-nodes'] : ['-passout', `pass:${passphrase}`];
  const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256'];
  const text = execFileSync(
    'openssl',
    ['req', '-x509', ...curve, ...guard, '-subj', '/CN=digest-gateway', '-days', '1', '-keyout', '-'],
    { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] },
  );
  const start = text.indexOf('-----BEGIN CERTIFICATE-----');
  return { key: text.slice(0, start), certificate: text.slice(start) };
}
