/** The documents that the upstream has, by name: their lengths in bytes. */
export const DOCUMENTS = { '2KB': 2048, '256KB': 256 * 1024 } as const;

export type DocumentName = keyof typeof DOCUMENTS;

/** Query of every request: parameters as the gateway's operations check them. */
export const QUERY = '?ids=%27DEMO-2026-0001%27&site_name=demo&external_id=123';
