import { expect, test } from '@jest/globals';
import { Actions } from '../../src/app/actions.ts';
import { noAudit } from '../../src/audit/audit.ts';

test('an action without an audit section is refused, and the error says that it needs one', async () => {
  const actions = new Actions({ audit: noAudit, isDraining: () => false } as never);
  const actor = {
    by: 'token',
    address: '127.0.0.1',
    operator: undefined,
    signal: AbortSignal.timeout(1_000),
  } as const;
  await expect(actions.perform({ action: 'drain' }, actor)).rejects.toMatchObject({
    code: 'audit-unavailable',
    status: 503,
    message: expect.stringContaining('Add an audit section to the configuration'),
  });
});
