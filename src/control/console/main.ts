import type { Snapshot } from '../view.ts';
import { AuditPanel } from './audit.ts';
import { ClientsPanel } from './clients.ts';
import { DeploymentsPanel } from './deployments.ts';
import { byId, setText } from './dom.ts';
import { ErrorsPanel } from './errors.ts';
import { moment, timeOfDay } from './format.ts';
import { follow } from './live.ts';
import { showCondition } from './state.ts';
import { followTheme } from './theme.ts';

const deployments = new DeploymentsPanel(byId('deployments'));
const clients = new ClientsPanel(byId('clients'));
const errors = new ErrorsPanel(byId('errors'));
const audit = new AuditPanel(byId('audit'));
let lostAt: number | undefined;

followTheme(byId('theme') as HTMLSelectElement, () => deployments.repaint());
follow({
  onHistory: (history) => deployments.fill(history),
  onAudit: (lines) => audit.fill(lines),
  onTick: (tick) => {
    const { snapshot } = tick;
    showGateway(snapshot);
    deployments.show(tick);
    clients.show(snapshot.clients);
    errors.show(snapshot.errors, snapshot.at);
    audit.show(snapshot.audit, tick.audit);
  },
  onConnection: showConnection,
});

function showGateway({ gateway, tokenAsked }: Snapshot): void {
  const { state, reasons, version, node, startedAt, configuredAt, storeUp } = gateway;
  const badge = byId('state-badge');
  showCondition(badge, state);
  setText(byId('state-reasons'), reasons.join(' '));
  const title = `${state} · digest-gateway`;
  if (document.title !== title) document.title = title;
  byId('leave').hidden = !tokenAsked;
  const redis = storeUp === null ? 'without Redis' : storeUp ? 'Redis reachable' : 'Redis unreachable';
  setText(
    byId('about'),
    `digest-gateway ${version} on Node.js ${node}; up since ${moment(startedAt)}; configured ${moment(configuredAt)}; ${redis}`,
  );
}

function showConnection(connected: boolean): void {
  if (connected) lostAt = undefined;
  else lostAt ??= Date.now();
  document.body.classList.toggle('stale', !connected);
  const lost = lostAt === undefined ? '' : `No connection since ${timeOfDay(lostAt)}. Trying again.`;
  setText(byId('connection'), connected ? 'live' : lost);
}
