import { createHash } from 'node:crypto';

/** The token that may act, and the one that may only read. */
export const TOKEN = 'a token that may act';
export const READ_TOKEN = 'a token that may read';

/** The hashes of both, as the configuration has them. */
export const TOKEN_HASHES = { tokenSha256: sha256(TOKEN), readTokenSha256: sha256(READ_TOKEN) } as const;

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

/** Status and JSON of a response. */
export interface Told {
  readonly status: number;
  // biome-ignore lint/suspicious/noExplicitAny: each test knows what it asks for.
  readonly json: any;
}

/** The cookie of a new session that this token opened. */
export async function signIn(control: string, token: string): Promise<string> {
  const body = new URLSearchParams({ token });
  const answer = await fetch(`${control}/login`, { method: 'POST', body, redirect: 'manual' });
  return answer.headers.get('set-cookie')?.split(';')[0] ?? '';
}

/** Headers by which a request is one of the console's page, in a session. */
export function ofPage(control: string, cookie: string): Record<string, string> {
  return { cookie, origin: control, 'sec-fetch-site': 'same-origin' };
}

/** Headers of a program with the token. */
export const OF_PROGRAM = { authorization: `Bearer ${TOKEN}` };

/** Posts JSON to the control plane. */
export async function post(url: string, body: unknown, headers: Record<string, string>): Promise<Told> {
  const answer = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  });
  const text = await answer.text();
  return { status: answer.status, json: text.startsWith('{') ? JSON.parse(text) : text };
}

/** Begins an action and confirms it; the response to the first request that is refused, or to the confirmation. */
export async function act(
  control: string,
  request: Record<string, unknown>,
  headers: Record<string, string> = OF_PROGRAM,
): Promise<Told> {
  const begun = await post(`${control}/api/actions`, request, headers);
  if (begun.status !== 200) return begun;
  return post(`${control}/api/actions/${begun.json.id}/confirm`, {}, headers);
}
