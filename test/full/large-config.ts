/** A configuration with many clients of every kind, each deployment with a credential of its own. */
export function largeConfig(clients: number, deployments: number) {
  const each = <T>(count: number, make: (index: number) => T): T[] =>
    Array.from({ length: count }, (_, at) => make(at));
  return {
    credentials: Object.fromEntries(
      each(deployments, (at) => [`c${at}`, { username: { env: 'API_USER' }, password: { env: 'API_KEY' } }]),
    ),
    deployments: Object.fromEntries(
      each(deployments, (at) => [
        `d${at}`,
        {
          // Half of them share an upstream and are told apart by their prefixes.
          baseUrl: at % 2 === 0 ? `https://upstream-${at}.invalid` : 'https://shared.invalid',
          match: { pathPrefix: `/api/d${at}/` },
          credential: `c${at}`,
          operations: {
            list: { method: 'GET', path: `/api/d${at}/{id}`, parameters: { ids: 'quoted-list' } },
          },
        },
      ]),
    ),
    jwt: { issuers: [{ issuer: 'https://login.invalid', jwksUrl: 'https://login.invalid/keys' }] },
    clients: each(clients, (at) => ({
      id: `client-${at}`,
      identify: identityOf(at),
      allow: [{ deployment: `d${at % deployments}`, operations: ['list'], methods: ['GET'] }],
      limits: { rate: '50/s' },
    })),
  };
}

/** A configuration with many clients, each known by one address, and one credential for all deployments. */
export function addressConfig(clients: number, deployments: number) {
  const each = <T>(count: number, make: (index: number) => T): T[] =>
    Array.from({ length: count }, (_, at) => make(at));
  return {
    credentials: { a: { username: { value: 'user' }, password: { value: 'word' } } },
    deployments: Object.fromEntries(
      each(deployments, (at) => [
        `d${at}`,
        {
          baseUrl: `https://upstream-${at}.invalid`,
          match: { pathPrefix: `/api/d${at}/` },
          credential: 'a',
        },
      ]),
    ),
    clients: each(clients, (at) => ({
      id: `client-${at}`,
      identify: { addresses: [`10.${(at >> 16) & 255}.${(at >> 8) & 255}.${at & 255}`] },
      allow: [{ deployment: `d${at % deployments}` }],
    })),
  };
}

function identityOf(at: number): Record<string, unknown> {
  const hash = at.toString(16).padStart(62, '0');
  switch (at % 4) {
    case 0:
      return { apiKeySha256: `ab${hash}` };
    case 1:
      return { addresses: [`10.${(at >> 16) & 255}.${(at >> 8) & 255}.${at & 255}`] };
    case 2:
      return { addresses: ['10.0.0.0/8'], apiKeySha256: [`cd${hash}`] };
    default:
      return {
        jwt: {
          issuer: 'https://login.invalid',
          audience: 'gateway',
          claims: { group: 'all', app: `a${at}` },
        },
      };
  }
}
