import { Network } from '../base/network.ts';
import { allowFits } from './allow.ts';
import type { Complaint, Path } from './faults.ts';
import { itemsAt, keysAt, textAt, valueAt } from './tree.ts';

/** Of nothing at all, as it comes out of a shell whose variable was not set. */
const SHA256_OF_NOTHING = 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855';

/** The rules between clients, and between them and the rest. `exposed`: other machines reach the data plane. */
export function* clientsFit(tree: unknown, exposed: boolean): Generator<Complaint> {
  yield* somebodyIsServed(tree, exposed);
  yield* proxiesFit(tree);
  yield* issuersFit(tree);
  const clients = itemsAt(tree, ['clients']).map((_, index) => ['clients', index]);
  for (const [index, path] of clients.entries()) {
    yield* idFits(tree, path, clients.slice(0, index));
    yield* keysFit(tree, path, clients.slice(0, index));
    yield* proofFits(tree, path);
    yield* allowFits(tree, [...path, 'allow']);
    const covering = clients.slice(0, index).find((earlier) => covers(tree, earlier, path));
    if (covering !== undefined) {
      yield {
        path,
        message: `is never reached: whoever fits it fits ${nameOf(tree, covering)} before it; put it first, or let it ask for more`,
      };
    }
  }
}

function* somebodyIsServed(tree: unknown, exposed: boolean): Generator<Complaint> {
  const clients = valueAt(tree, ['clients']);
  const none = clients === undefined || (Array.isArray(clients) && clients.length === 0);
  // A tree without deployments is not a configuration yet, and says so.
  const anonymous = valueAt(tree, ['anonymous']) ?? false;
  if (!none || anonymous !== false || keysAt(tree, ['deployments']).length === 0) return;
  const found = clients === undefined ? 'is missing' : 'is empty';
  const instead = exposed ? '' : ', or set anonymous to true to serve everyone on this machine';
  yield {
    path: ['clients'],
    message: `${found}, so nobody would be served: describe who may send requests (digest-gateway client add NAME makes the lines)${instead}`,
  };
}

function* proxiesFit(tree: unknown): Generator<Complaint> {
  for (const [index, written] of itemsAt(tree, ['listen', 'trustedProxies']).entries()) {
    if (readNetwork(written)?.bits !== 0) continue;
    yield {
      path: ['listen', 'trustedProxies', index],
      message: 'is every address, so that everyone could claim any: name the proxies only',
    };
  }
}

function* issuersFit(tree: unknown): Generator<Complaint> {
  const issuers = issuersOf(tree);
  for (const [index, issuer] of issuers.entries()) {
    if (issuer === undefined || issuers.indexOf(issuer) === index) continue;
    yield {
      path: ['jwt', 'issuers', index, 'issuer'],
      message: 'stands twice: keep one of the two',
    };
  }
}

function issuersOf(tree: unknown): (string | undefined)[] {
  const path = ['jwt', 'issuers'];
  return itemsAt(tree, path).map((_, index) => textAt(tree, [...path, index, 'issuer']));
}

function* idFits(tree: unknown, path: Path, earlier: readonly Path[]): Generator<Complaint> {
  const id = textAt(tree, [...path, 'id']);
  if (id === undefined) return;
  if (earlier.some((other) => textAt(tree, [...other, 'id']) === id)) {
    yield { path: [...path, 'id'], message: 'is that of another client, too: give each its own' };
  }
}

function* keysFit(tree: unknown, path: Path, earlier: readonly Path[]): Generator<Complaint> {
  const place = [...path, 'identify', 'apiKeySha256'];
  const hashes = hashesOf(tree, path);
  if (hashes.includes(SHA256_OF_NOTHING)) {
    yield {
      path: place,
      message: 'is the SHA-256 of nothing: make a key with digest-gateway client add NAME',
    };
  }
  const owner = earlier.find((other) => hashesOf(tree, other).some((hash) => hashes.includes(hash)));
  if (owner !== undefined) {
    yield {
      path: place,
      message: `is the key of ${nameOf(tree, owner)}, too: make one for each with digest-gateway client add NAME`,
    };
  }
}

function* proofFits(tree: unknown, path: Path): Generator<Complaint> {
  const identify = [...path, 'identify'];
  const given = keysAt(tree, identify);
  if (given.includes('certificate') && valueAt(tree, ['listen', 'tls', 'clientCaFile']) === undefined) {
    yield {
      path: [...identify, 'certificate'],
      message: 'needs listen.tls.clientCaFile: name the authority that signs the certificates of clients',
    };
  }
  const issuer = textAt(tree, [...identify, 'jwt', 'issuer']);
  const issuers = issuersOf(tree).filter((known) => known !== undefined);
  if (issuer !== undefined && !issuers.includes(issuer)) {
    const right = issuers.length === 0 ? 'describe it there' : `there are ${issuers.join(', ')}`;
    yield {
      path: [...identify, 'jwt', 'issuer'],
      message: `names an issuer that is not under jwt.issuers: ${right}`,
    };
  }
  if (given.length === 1 && networksOf(tree, path)?.some(({ bits }) => bits === 0) === true) {
    yield {
      path: [...identify, 'addresses'],
      message:
        'is every address, so that this client would be everyone: let it ask for more, or name its networks',
    };
  }
}

function nameOf(tree: unknown, path: Path): string {
  return textAt(tree, [...path, 'id']) ?? `clients[${path[1]}]`;
}

/** Whether whatever shows all that the later client lists shows all that the earlier one lists, too. */
function covers(tree: unknown, earlier: Path, later: Path): boolean {
  const wanted = keysAt(tree, [...earlier, 'identify']);
  return (
    wanted.length > 0 &&
    wanted.every((key) =>
      key === 'addresses' ? coversNetworks(tree, earlier, later) : coversValue(tree, earlier, later, key),
    )
  );
}

function coversNetworks(tree: unknown, earlier: Path, later: Path): boolean {
  const wide = networksOf(tree, earlier);
  const narrow = networksOf(tree, later);
  if (wide === undefined || narrow === undefined) return false;
  return narrow.every((network) => wide.some((other) => other.covers(network)));
}

/** For certificate and jwt: each key that the earlier one has, the later one has with the same value. */
function coversValue(tree: unknown, earlier: Path, later: Path, key: string): boolean {
  const wide = valueAt(tree, [...earlier, 'identify', key]);
  const narrow = valueAt(tree, [...later, 'identify', key]);
  return holdsAll(wide, narrow);
}

function holdsAll(wide: unknown, narrow: unknown): boolean {
  if (typeof wide !== 'object' || wide === null) return wide !== undefined && wide === narrow;
  return Object.keys(wide).every((key) => holdsAll(valueAt(wide, [key]), valueAt(narrow, [key])));
}

function hashesOf(tree: unknown, client: Path): string[] {
  const path = [...client, 'identify', 'apiKeySha256'];
  const listed = itemsAt(tree, path);
  return [textAt(tree, path), ...listed]
    .filter((hash) => typeof hash === 'string')
    .map((hash) => hash.toLowerCase());
}

/** undefined: there are none, or not all of them are networks. */
function networksOf(tree: unknown, client: Path): Network[] | undefined {
  const networks = itemsAt(tree, [...client, 'identify', 'addresses']).map(readNetwork);
  return networks.length > 0 && networks.every((network) => network !== undefined) ? networks : undefined;
}

function readNetwork(written: unknown): Network | undefined {
  try {
    return Network.parse(String(written));
  } catch {
    return undefined;
  }
}
