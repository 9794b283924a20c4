import { allowFits } from './allow.ts';
import type { Issue } from './issues.ts';
import { itemsAt, keysAt, listNames, textAt, valueAt } from './tree.ts';
import { EarlierClients, readClients, readNetwork, type WrittenClient } from './written-clients.ts';

/** SHA-256 of the empty text, which a shell produces from an unset variable. */
const SHA256_OF_NOTHING = 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855';

/**
 * Checks clients against each other and other sections. `exposed`: other machines can reach the data plane.
 */
export function* clientsFit(tree: unknown, exposed: boolean): Generator<Issue> {
  yield* somebodyIsServed(tree, exposed);
  yield* proxiesFit(tree);
  yield* issuersFit(tree);
  const clients = readClients(tree);
  const earlier = new EarlierClients(clients);
  const issuers = new Set(issuersOf(tree));
  for (const client of clients) {
    const { path } = client;
    yield* idFits(client, earlier);
    yield* keysFit(client, earlier);
    yield* proofFits(tree, client, issuers);
    yield* allowFits(tree, [...path, 'allow']);
    const covering = earlier.covering(client);
    if (covering !== undefined) {
      yield {
        path,
        message: `is never reached: every request that fits it also fits ${nameOf(covering)} before it; put it first, or let it require more`,
      };
    }
    earlier.add(client);
  }
}

function* somebodyIsServed(tree: unknown, exposed: boolean): Generator<Issue> {
  const clients = valueAt(tree, ['clients']);
  const none = clients === undefined || (Array.isArray(clients) && clients.length === 0);
  // A tree without deployments has an issue of its own.
  const anonymous = valueAt(tree, ['anonymous']) ?? false;
  if (!none || anonymous !== false || keysAt(tree, ['deployments']).length === 0) return;
  const found = clients === undefined ? 'is missing' : 'is empty';
  const instead = exposed ? '' : ', or set anonymous to true to serve everyone on this machine';
  yield {
    path: ['clients'],
    message: `${found}, so no request would be served: describe a client (digest-gateway client add NAME prints the lines)${instead}`,
  };
}

function* proxiesFit(tree: unknown): Generator<Issue> {
  for (const [index, written] of itemsAt(tree, ['listen', 'trustedProxies']).entries()) {
    if (readNetwork(written)?.bits !== 0) continue;
    yield {
      path: ['listen', 'trustedProxies', index],
      message: 'is every address, so that everyone could claim any: name the proxies only',
    };
  }
}

function* issuersFit(tree: unknown): Generator<Issue> {
  const issuers = issuersOf(tree);
  for (const [index, issuer] of issuers.entries()) {
    if (issuer === undefined || issuers.indexOf(issuer) === index) continue;
    yield {
      path: ['jwt', 'issuers', index, 'issuer'],
      message: 'is listed twice: keep one of the two',
    };
  }
}

function issuersOf(tree: unknown): (string | undefined)[] {
  const path = ['jwt', 'issuers'];
  return itemsAt(tree, path).map((_, index) => textAt(tree, [...path, index, 'issuer']));
}

function* idFits({ path, id }: WrittenClient, earlier: EarlierClients): Generator<Issue> {
  if (id !== undefined && earlier.ids.has(id)) {
    yield { path: [...path, 'id'], message: 'is that of another client, too: give each its own' };
  }
}

function* keysFit({ path, hashes }: WrittenClient, earlier: EarlierClients): Generator<Issue> {
  const place = [...path, 'identify', 'apiKeySha256'];
  if (hashes.includes(SHA256_OF_NOTHING)) {
    yield {
      path: place,
      message: 'is the SHA-256 of nothing: make a key with digest-gateway client add NAME',
    };
  }
  const owner = earlier.ownerOf(hashes);
  if (owner !== undefined) {
    yield {
      path: place,
      message: `is the key of ${nameOf(owner)}, too: make one for each with digest-gateway client add NAME`,
    };
  }
}

function* proofFits(
  tree: unknown,
  { path, networks }: WrittenClient,
  issuers: ReadonlySet<string | undefined>,
): Generator<Issue> {
  const identify = [...path, 'identify'];
  const given = keysAt(tree, identify);
  if (given.includes('certificate') && valueAt(tree, ['listen', 'tls', 'clientCaFile']) === undefined) {
    yield {
      path: [...identify, 'certificate'],
      message: 'needs listen.tls.clientCaFile: name the authority that signs the certificates of clients',
    };
  }
  const issuer = textAt(tree, [...identify, 'jwt', 'issuer']);
  if (issuer !== undefined && !issuers.has(issuer)) {
    const known = listNames([...issuers].filter((name) => name !== undefined));
    const right = known === '' ? 'describe it there' : `there are ${known}`;
    yield {
      path: [...identify, 'jwt', 'issuer'],
      message: `names an issuer that is not under jwt.issuers: ${right}`,
    };
  }
  if (given.length === 1 && networks?.some(({ bits }) => bits === 0) === true) {
    yield {
      path: [...identify, 'addresses'],
      message:
        'is every address, so that this client would be everyone: let it ask for more, or name its networks',
    };
  }
}

function nameOf({ id, index }: WrittenClient): string {
  return id ?? `clients[${index}]`;
}
