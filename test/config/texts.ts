/** A deployment and a credential that are right, on lines of their own, to build invalid texts from. */
export const CREDENTIALS = 'credentials: { a: { username: { env: U }, password: { env: P } } }';

export const DEPLOYMENTS =
  'deployments: { d: { baseUrl: "https://a.example", match: { pathPrefix: /a/ }, credential: a } }';

export const CLIENTS = 'clients: [{ id: c, identify: { addresses: [10.0.0.1] } }]';

/** The deployment `d` with more or other keys, each on a line of its own that starts in column 5. */
export function withDeployment(...lines: string[]): string {
  return [CREDENTIALS, 'deployments:', '  d:', ...lines.map((line) => `    ${line}`)].join('\n');
}

/** As `withDeployment`, where `baseUrl`, `match` and `credential` are there already, in lines 4 to 6. */
export function withMore(...lines: string[]): string {
  return withDeployment(
    'baseUrl: https://a.example',
    'match: { pathPrefix: /a/ }',
    'credential: a',
    ...lines,
  );
}
