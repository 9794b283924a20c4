import { expect, test } from '@jest/globals';
import { runAtOnce } from '../../src/base/steps.ts';
import { ConfigError } from '../../src/config/issues.ts';
import { locatedAlone } from '../../src/config/load.ts';
import type { Config } from '../../src/config/schema.ts';
import { fromPieces, toPieces } from '../../src/config/transfer.ts';
import { fileName } from '../../src/config/value-schemas.ts';
import { CLIENTS, CREDENTIALS, DEPLOYMENTS, withMore } from './texts.ts';

/** The slices of the configuration in this folder. */
function slicesIn(folder: string): ReturnType<typeof fromPieces> {
  const text = [withMore('tls: { caFile: ca.pem }'), CLIENTS].join('\n');
  const file = `${folder}/c.yaml`;
  return fromPieces(toPieces(locatedAlone(Buffer.from(text), file).tree), file);
}

function caFileOf({ deployments }: Config): string | undefined {
  return deployments['d']?.tls.caFile;
}

test('relative names start at the folder of their configuration, whatever is read between its slices', () => {
  const [one, other] = [slicesIn('/one'), slicesIn('/other')];
  const found: (string | undefined)[] = [];
  for (let isDone = false; !isDone; ) {
    const steps = [one, other].map((slices) => slices.next());
    expect(() => locatedAlone(Buffer.from('audit: { directory: logs }'), '/third/c.yaml')).toThrow(
      ConfigError,
    );
    isDone = steps.every(({ done }) => done === true);
    found.push(...steps.flatMap(({ value }) => (value === undefined ? [] : [caFileOf(value)])));
  }
  expect(found).toEqual(['/one/ca.pem', '/other/ca.pem']);
});

test('a configuration gets nothing from the one before it', () => {
  expect(runAtOnce(slicesIn('/one')).clients).toHaveLength(1);
  const text = ['anonymous: true', CREDENTIALS, DEPLOYMENTS].join('\n');
  expect(locatedAlone(Buffer.from(text), '/one/c.yaml').config.clients).toEqual([]);
});

test('a file name outside of a configuration is an error', () => {
  expect(() => fileName().parse('ca.pem')).toThrow('a file name is parsed outside of a folder');
});
