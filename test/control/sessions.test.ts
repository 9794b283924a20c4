import { expect, test } from '@jest/globals';
import { Sessions } from '../../src/control/sessions.ts';

const BOUNDS = { idle: 1_000, life: 10_000, max: 3 };
const ROLES = new Set(['viewer'] as const);

function start() {
  const clock = { time: 0, now: () => clock.time };
  const sessions = new Sessions(BOUNDS, clock);
  const open = (subject?: string) => {
    const operator = subject === undefined ? undefined : { name: 'A name', subject };
    return sessions.open({ roles: ROLES, operator });
  };
  return { clock, sessions, open };
}

test('a session ends after the idle time, and at the end of its life however much it is used', () => {
  const { clock, sessions, open } = start();
  const [idle = '', used = ''] = [open('a'), open('b')];
  clock.time = 999;
  expect(sessions.find(used)?.operator?.subject).toBe('b');
  clock.time = 1_000;
  expect(sessions.find(idle)).toBeUndefined();
  for (let now = 1_000; now < BOUNDS.life; now += 500) {
    clock.time = now;
    expect([now, sessions.find(used) !== undefined]).toEqual([now, true]);
  }
  clock.time = BOUNDS.life;
  expect(sessions.find(used)).toBeUndefined();
});

test('sessions are counted while they are open', () => {
  const { clock, sessions, open } = start();
  const [first = ''] = [open('a'), open(), open('b')];
  expect(sessions.count).toBe(3);
  sessions.end(sessions.find(first)?.id ?? '');
  expect(sessions.count).toBe(2);
  clock.time = BOUNDS.idle;
  expect(sessions.count).toBe(0);
});

test('the use of a session by its id counts, and says when it has ended', () => {
  const { clock, sessions, open } = start();
  const { id = '' } = sessions.find(open('a') ?? '') ?? {};
  clock.time = 900;
  expect(sessions.use(id)).toBe(true);
  clock.time = 1_800;
  expect(sessions.use(id)).toBe(true);
  sessions.end(id);
  expect(sessions.use(id)).toBe(false);
});

test('people have as many sessions as are allowed; tokens open one in spite of it, and ended ones make room', () => {
  const { clock, sessions, open } = start();
  const [first = ''] = ['a', 'b', 'c'].map(open);
  expect(open('d')).toBeUndefined();
  expect(open()).toEqual(expect.any(String));
  sessions.end(sessions.find(first)?.id ?? '');
  expect(open('d')).toEqual(expect.any(String));
  clock.time = BOUNDS.idle;
  expect(['e', 'f', 'g'].map(open)).toEqual(Array(3).fill(expect.any(String)));
});

test('a person has ten sessions, and a token a hundred: the oldest one ends', () => {
  const clock = { now: () => 0 };
  const sessions = new Sessions({ ...BOUNDS, max: 1_000 }, clock);
  const openMany = (count: number, operator?: { name: string; subject: string }) =>
    Array.from({ length: count }, () => sessions.open({ roles: ROLES, operator }) ?? '');
  const other = openMany(1, { name: 'A', subject: 'other' });
  const own = openMany(11, { name: 'A', subject: 'own' });
  const ofToken = openMany(101);
  const isOpen = (value: string) => sessions.find(value) !== undefined;
  expect(other.map(isOpen)).toEqual([true]);
  expect(own.map(isOpen)).toEqual([false, ...Array(10).fill(true)]);
  expect(ofToken.map(isOpen)).toEqual([false, ...Array(100).fill(true)]);
  // Of another token.
  const value = sessions.open({ roles: new Set(['operator']), operator: undefined }) ?? '';
  openMany(101);
  expect(isOpen(value)).toBe(true);
});

test('what is no cookie of a session finds none', () => {
  const { sessions, open } = start();
  const value = open('a') ?? '';
  const { id = '' } = sessions.find(value) ?? {};
  for (const wrong of ['', 'x', id, `${value}x`, value.slice(1), '__proto__', 'A'.repeat(43)]) {
    expect([wrong, sessions.find(wrong)]).toEqual([wrong, undefined]);
  }
});
