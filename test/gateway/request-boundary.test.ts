import { describe, expect, test } from '@jest/globals';
import { RequestBoundary } from '../../src/gateway/request-boundary.ts';

interface Sample {
  readonly bytes: string;
  /** Length of the head. */
  readonly head: number;
  readonly headers: Record<string, string>;
}

function sample(head: string, body = ''): Sample {
  const headers: Record<string, string> = {};
  for (const line of head.trim().split('\r\n').slice(1)) {
    const [name = '', value = ''] = line.split(': ');
    headers[name.toLowerCase()] = value;
  }
  return { bytes: head + body, head: head.length, headers };
}

const samples = [
  sample('GET / HTTP/1.1\r\nHost: x\r\n\r\n'),
  sample('GET / HTTP/1.0\r\n\r\n'),
  sample('\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n'),
  sample('POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n'),
  sample('POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n', 'hello'),
  sample('POST / HTTP/1.1\r\nContent-Length: 8\r\n\r\n', '\r\n\r\n\r\n\r\n'),
  sample('POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\n', '\r\n\r'),
  sample('POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n', '0\r\n\r\n'),
  sample(
    'POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n',
    '5;a=b\r\nhello\r\n2\r\n\r\n\r\n0\r\nA: b\r\n\r\n',
  ),
  sample('PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n', '8\r\n0\r\n\r\n0\r\n\r\n0\r\n\r\n'),
];

/** Numbers from 0 to `below`, the same in each run. */
function numbers(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state * 1103515245 + 12345) % 2 ** 31;
    return Math.floor((state / 2 ** 31) * below);
  };
}

/** Gives the bytes of the requests to a boundary in chunks of up to so many bytes; returns the protocols it saw. */
function protocolsOf(requests: readonly Sample[], chunkLength: () => number): (string | undefined)[] {
  const bytes = Buffer.from(requests.map((each) => each.bytes).join(''));
  const boundary = new RequestBoundary();
  const protocols: (string | undefined)[] = [];
  let [begun, at, from] = [0, 0, 0];
  let chunk = Buffer.alloc(0);
  for (const request of requests) {
    const end = begun + request.bytes.length;
    while (at < end) {
      if (from === chunk.length) [chunk, from] = [bytes.subarray(at, at + chunkLength()), 0];
      const next = boundary.next(chunk, from);
      expect(next).toBeGreaterThan(from);
      at += next - from;
      from = next;
      if (at !== begun + request.head) continue;
      protocols.push(boundary.protocol);
      boundary.expectBody(request.headers);
    }
    expect(at).toBe(end);
    boundary.reset();
    begun = end;
  }
  return protocols;
}

test('names the end of each request, however the bytes are cut', () => {
  const random = numbers(7);
  for (let round = 0; round < 2_000; round += 1) {
    const requests = Array.from({ length: 1 + random(6) }, () => samples[random(samples.length)] as Sample);
    const most = round % 2 === 0 ? 4 : 60;
    const expected = requests.map(({ bytes }) => /HTTP\/1\.[01]/.exec(bytes)?.[0]);
    expect(protocolsOf(requests, () => 1 + random(most))).toEqual(expected);
  }
});

describe('the protocol', () => {
  const whole = (text: string): string | undefined => {
    const boundary = new RequestBoundary();
    boundary.next(Buffer.from(text), 0);
    return boundary.protocol;
  };

  test.each([
    ['GET / HTTP/1.1\r\n', 'HTTP/1.1'],
    ['GET / RTSP/1.1\r\n', 'RTSP/1.1'],
    ['SOURCE / ICE/1.0\r\n', ' ICE/1.0'],
    ['\r\n\r\nGET / HTTP/1.1\r\nA: RTSP/1.1\r\n', 'HTTP/1.1'],
    ['GET / HTTP/1.1', undefined],
    ['\r\n', undefined],
  ])('of %j is %j', (text, protocol) => expect(whole(text)).toBe(protocol));

  test('is found when its bytes come one by one', () => {
    const boundary = new RequestBoundary();
    for (const byte of Buffer.from('\r\nGET / RTSP/1.0\r\nA: b')) boundary.next(Buffer.of(byte), 0);
    expect(boundary.protocol).toBe('RTSP/1.0');
  });
});
