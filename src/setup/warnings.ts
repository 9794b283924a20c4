import type { Issue } from '../config/issues.ts';
import type { Config } from '../config/schema.ts';
import { inlineSecrets } from './secret-uses.ts';

/** Returns settings that work but should be changed, as far as the configuration alone shows them. */
export function configWarnings(config: Config): Issue[] {
  return [...inlineSecrets(config), ...singlePins(config), ...clientsWithoutRules(config)];
}

/** Warns of a single pin: a change of the upstream's key then ends all service. */
function singlePins({ deployments }: Config): Issue[] {
  return Object.entries(deployments)
    .filter(([, { tls }]) => tls.pinSha256?.length === 1)
    .map(([name]) => ({
      path: ['deployments', name, 'tls', 'pinSha256'],
      message:
        'has one pin: on the day that the upstream changes its key nothing gets through; add the pin of the next key, or of another authority',
    }));
}

function clientsWithoutRules({ clients, deployments }: Config): Issue[] {
  const [deployment = 'NAME'] = Object.keys(deployments);
  return clients.flatMap(({ id, allow }, index) => {
    if (allow.length > 0) return [];
    const message = `has no rule, so every request of ${id} is refused: add one, such as { deployment: ${deployment} }`;
    return [{ path: ['clients', index, 'allow'], message }];
  });
}
