import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { exportJWK, generateKeyPair, type JWK, SignJWT } from 'jose';

/** Who signs tokens, and publishes the keys to check them with. */
export interface TestIssuer {
  readonly issuer: string;
  readonly jwksUrl: string;
  /** How often its keys were asked for. */
  readonly fetched: number;
  /** A token in force, with these claims beside or instead of the usual ones. */
  token(claims?: Record<string, unknown>, header?: { kid?: string }): Promise<string>;
  /** Signs with another key from now on, and publishes that one only. */
  rotate(): Promise<void>;
  /** What it answers from now on to who asks for its keys; undefined: the keys. */
  answer(how: { status: number; body: string } | 'hang' | undefined): void;
  close(): Promise<void>;
}

export const AUDIENCE = 'digest-gateway';

export async function startTestIssuer(): Promise<TestIssuer> {
  let [key, fetched] = [await createKey(1), 0];
  let answer: { status: number; body: string } | 'hang' | undefined;
  let rotations = 1;
  const server = createServer((_req, res) => {
    fetched += 1;
    if (answer === 'hang') return;
    const { status, body } = answer ?? { status: 200, body: JSON.stringify({ keys: [key.jwk] }) };
    res.writeHead(status, { 'content-type': 'application/json' }).end(body);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const issuer = `http://127.0.0.1:${port}/`;
  return {
    issuer,
    jwksUrl: `${issuer}keys`,
    get fetched() {
      return fetched;
    },
    token: (claims = {}, header = {}) =>
      new SignJWT({ iss: issuer, aud: AUDIENCE, sub: 'importer', exp: inSeconds(60), ...claims })
        .setProtectedHeader({ alg: 'ES256', kid: key.kid, ...header })
        .sign(key.privateKey),
    rotate: async () => {
      rotations += 1;
      key = await createKey(rotations);
    },
    answer: (how) => {
      answer = how;
    },
    close: async () => {
      server.close();
      server.closeAllConnections();
      await once(server, 'close');
    },
  };
}

/** A moment from now, as tokens have it. */
export function inSeconds(seconds: number): number {
  return Math.floor(Date.now() / 1000) + seconds;
}

async function createKey(number: number) {
  const kid = `key-${number}`;
  const { privateKey, publicKey } = await generateKeyPair('ES256');
  const jwk: JWK = { ...(await exportJWK(publicKey)), kid, alg: 'ES256', use: 'sig' };
  return { kid, privateKey, jwk };
}
