import { createServer as createHttp, type IncomingMessage, type RequestListener } from 'node:http';
import { connect, createServer as createTcp, type Socket } from 'node:net';
import { jest } from '@jest/globals';
import { exportJWK, generateKeyPair, type JWK } from 'jose';
import type { ClientMetadata, Configuration } from 'oidc-provider';
import { listenOnLoopback } from './loopback-server.ts';

export const CLIENT_ID = 'digest-gateway';
export const CLIENT_SECRET = 'the secret of the console';

/** The claims of a person, by the name that this person signs in with. */
export type People = Readonly<Record<string, Readonly<Record<string, unknown>>>>;

export interface OidcScene extends AsyncDisposable {
  readonly issuer: string;
  /** The address of the console in browsers. */
  readonly publicUrl: string;
  /** `control.oidc` of a gateway. */
  readonly section: Record<string, unknown>;
  /** Leads browsers from `publicUrl` to this control plane. */
  lead(control: string): void;
  /** Stops the provider; a second call does nothing. */
  stopProvider(): Promise<void>;
  close(): Promise<void>;
}

export interface OidcSceneOptions {
  readonly people: People;
  /** Changes of `control.oidc`. */
  readonly section?: Record<string, unknown>;
  /** Changes of the client at the provider, and of the provider itself. */
  readonly client?: Partial<ClientMetadata>;
  readonly provider?: Configuration;
  /** Called for each request to the provider, which waits for it. */
  readonly before?: (request: IncomingMessage) => Promise<void>;
}

let key: Promise<JWK> | undefined;

/** The key of every provider of a process: making one takes a tenth of a second. */
function signingKey(): Promise<JWK> {
  key ??= generateKeyPair('RS256', { extractable: true }).then(async ({ privateKey }) => ({
    ...(await exportJWK(privateKey)),
    alg: 'RS256',
    use: 'sig',
  }));
  return key;
}

/**
 * A real OpenID provider, at which everyone of `people` signs in with any password, and an address for browsers that
 * leads to a console. Both are of different sites.
 */
export async function openOidc({
  people,
  section,
  client,
  provider,
  before,
}: OidcSceneOptions): Promise<OidcScene> {
  let handle: RequestListener = (_req, res) => res.writeHead(503).end();
  const server = await listenOnLoopback(createHttp((req, res) => handle(req, res)));
  let control = 0;
  const front = await listenOnLoopback(createTcp((socket) => joined(socket, connect(control, '127.0.0.1'))));
  const issuer = `http://localhost:${server.port}`;
  const publicUrl = `http://127.0.0.1:${front.port}`;
  // It warns of what only a test may have.
  for (const method of ['info', 'warn'] as const) jest.spyOn(console, method).mockImplementation(() => {});
  const { default: Provider } = await import('oidc-provider');
  const found = new Provider(issuer, {
    clients: [
      {
        client_id: CLIENT_ID,
        client_secret: CLIENT_SECRET,
        redirect_uris: [`${publicUrl}/login/callback`],
        post_logout_redirect_uris: [`${publicUrl}/login`],
        ...client,
      },
    ],
    jwks: { keys: [await signingKey()] },
    cookies: { keys: ['a key of the test'] },
    claims: { openid: ['sub'], profile: ['name', 'groups'], email: ['email'] },
    findAccount: (_context, id) => ({ accountId: id, claims: () => ({ ...people[id], sub: id }) }),
    // Without a question for consent.
    loadExistingGrant: async ({ oidc }) => {
      const grant = new oidc.provider.Grant({
        clientId: oidc.client?.clientId ?? '',
        accountId: oidc.session?.accountId ?? '',
      });
      grant.addOIDCScope('openid profile email');
      await grant.save();
      return grant;
    },
    ...provider,
  });
  const callback = found.callback();
  handle = async (req, res) => {
    await before?.(req);
    await callback(req, res);
  };
  let stopping: Promise<void> | undefined;
  const stopProvider = (): Promise<void> => {
    stopping ??= server.close();
    return stopping;
  };
  const close = async (): Promise<void> => {
    await Promise.all([stopProvider(), front.close()]);
  };
  return {
    issuer,
    publicUrl,
    section: {
      issuer,
      clientId: CLIENT_ID,
      clientSecret: { value: CLIENT_SECRET },
      publicUrl,
      roles: { viewer: ['everyone'], operator: ['ops'], auditor: ['auditors'], nameClaim: 'email' },
      ...section,
    },
    lead: (origin) => {
      control = Number(new URL(origin).port);
    },
    stopProvider,
    close,
    [Symbol.asyncDispose]: close,
  };
}

function joined(one: Socket, other: Socket): void {
  for (const [from, to] of [
    [one, other],
    [other, one],
  ] as const) {
    from.pipe(to);
    from.once('error', () => to.destroy());
    from.once('close', () => to.destroy());
  }
}

/** A browser without pages: it keeps cookies and follows redirects. */
export class CookieClient {
  readonly #cookies = new Map<string, Map<string, string>>();

  /** The cookies for this address, as a header has them. */
  cookies(url: string): string {
    const own = this.#cookies.get(new URL(url).hostname) ?? new Map<string, string>();
    return Array.from(own, ([name, value]) => `${name}=${value}`).join('; ');
  }

  /** Sends a request, and follows redirects to the last response. */
  async open(
    url: string,
    form?: Record<string, string>,
  ): Promise<{ readonly url: string; readonly response: Response }> {
    const response = await fetch(url, {
      redirect: 'manual',
      headers: { cookie: this.cookies(url) },
      ...(form && { method: 'POST', body: new URLSearchParams(form) }),
    });
    this.#keep(url, response);
    const location = response.headers.get('location');
    if (location === null) return { url, response };
    await response.body?.cancel();
    return this.open(new URL(location, url).href);
  }

  /** Signs in at the provider as this person; the last response. */
  async signIn(publicUrl: string, login: string): Promise<Response> {
    const { url, response } = await this.open(`${publicUrl}/login/start`);
    if (!url.includes('/interaction/')) return response;
    await response.body?.cancel();
    return (await this.open(url, { prompt: 'login', login, password: 'any' })).response;
  }

  #keep(url: string, response: Response): void {
    const { hostname } = new URL(url);
    const own = this.#cookies.get(hostname) ?? new Map<string, string>();
    this.#cookies.set(hostname, own);
    for (const line of response.headers.getSetCookie()) {
      const [pair = ''] = line.split(';');
      const [name = '', value = ''] = pair.split(/=(.*)/s);
      if (value === '' || /expires=Thu, 01 Jan 1970/i.test(line)) own.delete(name);
      else own.set(name, value);
    }
  }
}
