import { createHmac, hkdfSync } from 'node:crypto';
import { auditKeys } from '../../src/audit/keys.ts';
import { CollectionProgress } from '../../src/audit/shipping/collector.ts';
import { Secret } from '../../src/base/secret.ts';
import { ChangeFeed } from '../../src/challenges/store/change-feed.ts';
import type { HeldChallenge } from '../../src/challenges/store/store.ts';
import {
  readHeld,
  readLearned,
  readParked,
  writeHeld,
  writeLearned,
  writeParked,
} from '../../src/challenges/store/stored-form.ts';
import { storeKeys, ValueSigner } from '../../src/challenges/store/value-signer.ts';
import { formatEntries, parseEntries, type SealedValue } from '../../src/credentials/sealed-file.ts';
import { limitStateForm, partOf } from '../../src/limits/store.ts';
import { CONTROL, must, mustEqual, withoutWarning } from './violation.ts';

/*
 * An input is a text that is stored where others can write to: in Redis, or in a sealed file. It is read as each of the
 * stored forms.
 */

const KEY = '0123456789abcdef'.repeat(4);
const KEYS = storeKeys(new Secret(KEY));
const PLACE = { kind: 'challenge', place: 'torture' } as const;
const USED = 'used';
const MOST_COOKIES = 16;
const MOST_COOKIE_LENGTH = 4096;

export function check(input: Buffer): void {
  const text = input.toString('utf8');
  checkForms(text);
  checkSignature(text);
  checkAnnouncement(text);
  checkEntries(text);
  checkLimits(text);
  checkStream(text);
}

function checkForms(text: string): void {
  const held = readHeld(text, 5);
  if (held !== undefined) {
    must(held.ageMs === 5 && held.challenge.qop.length === 0, 'a shared challenge has no count');
    checkHeld(held);
    mustEqual(readHeld(writeHeld(held), 5), held, 'a challenge is read as it is written');
  }
  const parked = readParked(text, 5);
  if (parked !== undefined) {
    must(parked.challenge.qop.length > 0, 'a parked challenge has a count');
    must(parked.count >= 0 && parked.count <= 0xffffffff, 'nc has eight hex digits');
    must(parked.cnonce.length > 0 && !CONTROL.test(parked.cnonce), 'a cnonce can be sent');
    checkHeld(parked);
    mustEqual(readParked(writeParked(parked), 5), parked, 'a parked challenge is read as it is written');
  }
  const learned = readLearned(text, 0);
  if (learned !== undefined) {
    must((learned.lifetimeMs ?? 1) > 0, 'a lifetime is positive');
    mustEqual(readLearned(writeLearned(learned), 0), learned, 'learned facts are read as they are written');
  }
}

function checkHeld({ challenge, cookies }: HeldChallenge): void {
  const { realm, nonce, opaque = '' } = challenge;
  const values = [realm, nonce, opaque, ...cookies];
  must(nonce !== '' && values.every((value) => !CONTROL.test(value)), 'what is stored can be sent');
  const length = cookies.reduce((sum, cookie) => sum + cookie.length, 0);
  must(
    cookies.length <= MOST_COOKIES && length <= MOST_COOKIE_LENGTH,
    'cookies are as many as a request can carry',
  );
  must(
    cookies.every((cookie) => /^[^=;]+=[^;]*$/.test(cookie)),
    'a cookie is one pair',
  );
}

const SIGNATURE = Buffer.from(
  hkdfSync('sha256', Buffer.from(KEY, 'hex'), '', 'digest-gateway store signature', 32),
);

/** A value is believed if its signature is what this code, which is not that of the store, computes. */
function checkSignature(text: string): void {
  const signer = new ValueSigner(KEYS);
  const opened = signer.open(PLACE, text);
  const [id, mac = '', issued = '', life = '', ...rest] = text.split('.');
  const signed = rest.join('.');
  const right = createHmac('sha256', SIGNATURE)
    .update(`challenge\ntorture\n${Number(issued)}\n${Number(life)}\n${signed}`)
    .digest('base64url');
  const isSigned =
    id === KEYS[0]?.id &&
    Buffer.from(mac, 'base64url').equals(Buffer.from(right, 'base64url')) &&
    rest.length > 0;
  if (opened !== 'forged') must(isSigned, 'a value without a signature is forged');
  if (typeof opened !== 'string') mustEqual(opened.text, signed, 'a signed value is read as it was signed');
  const own = signer.open(PLACE, signer.sign(PLACE, text, 0, 60_000));
  must(typeof own !== 'string' && own.text === text, 'a value that was signed is believed');
  const other = signer.open({ kind: 'parked', place: PLACE.place }, signer.sign(PLACE, text, 0, 60_000));
  must(other === 'forged', 'one kind does not pass for another');
}

function checkAnnouncement(text: string): void {
  const heard: string[] = [];
  const feed = new ChangeFeed({
    process: 'me',
    channel: 'changes',
    signer: new ValueSigner([]),
    isUsed: (key) => key === USED,
    onChange: (key) => heard.push(key),
    onRejected: () => undefined,
  });
  feed.hear(text);
  feed.close();
  const isOurs =
    text.length <= 4096 && text.endsWith(` ${USED}`) && text.indexOf(' ') === text.length - USED.length - 1;
  const announced = isOurs && text.length > USED.length + 1 && text !== `me ${USED}`;
  mustEqual(heard, announced ? [USED] : [], 'only a key that is used is announced');
}

function checkEntries(text: string): void {
  const entries = withoutWarning(() => parseEntries(text));
  if (entries === undefined) return;
  for (const [name, { value, version, sealedAt }] of entries) {
    must(/^[A-Za-z0-9][\w.-]{0,63}$/.test(name), 'a name needs no quotes');
    must(
      value.reveal() !== '' && Number.isInteger(version) && version >= 1,
      'an entry has a value and a version',
    );
    must(sealedAt === undefined || !Number.isNaN(sealedAt.getTime()), 'a date is one');
  }
  const written = formatEntries(entries);
  mustEqual(
    plainOf(parseEntries(written.reveal())),
    plainOf(entries),
    'entries are read as they are written',
  );
}

function plainOf(entries: ReturnType<typeof parseEntries>): unknown {
  return Array.from(entries ?? [], ([name, { next, ...current }]) => [
    name,
    ...[current, next].map(valuesOf),
  ]);
}

function valuesOf(sealed: SealedValue | undefined): unknown {
  return sealed && [sealed.value.reveal(), sealed.version, sealed.sealedAt?.getTime()];
}

function checkLimits(text: string): void {
  const state = limitStateForm.safeParse(jsonOf(text)).data;
  if (state === undefined) return;
  const { tokens, used, othersInFlight, members, share } = state;
  must([tokens, used, othersInFlight, members].every(Number.isFinite), 'the usage of a limit is a number');
  must(share > 0 && share <= 1 && members >= 1, 'a process has a part of a limit');
  must(partOf(100, share) > 0 && partOf(100, share) <= 100, 'a part is no more than the whole');
}

/** The lines of an entry: its replica, the seal, the one before, then records. */
function checkStream(text: string): void {
  const [replica = '', seal = '', previous = '', ...lines] = text.split('\n');
  const rejected: string[] = [];
  const progress = new CollectionProgress({
    keys: [auditKeys(new Secret(KEY))],
    reached: [],
    onNote: () => undefined,
    onRejected: (id) => rejected.push(id),
  });
  const entry = {
    id: '1-0',
    replica,
    lines: lines.join('\n'),
    seal,
    previous,
    anchor: true,
    tooLarge: false,
    gone: false,
  };
  const taken = progress.take(entry);
  must(
    rejected.length === 1 && taken === '' && progress.replicas.size === 0,
    'an entry without a seal of the key changes nothing',
  );
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
