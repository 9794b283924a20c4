import { useEffect, useState } from 'preact/hooks';
import type { AddressView, DeploymentView, MapView, WayView } from '../../view.ts';
import { useFetch } from '../api.ts';
import { count, rate } from '../format.ts';
import { snapshot } from '../live.ts';
import { type Edge, type Layout, layOut, NARROW, type Node, type Shape, WIDE } from '../parts/graph.ts';
import { changeQuery, type PageProps } from '../parts/links.tsx';
import { useRates } from '../parts/rates.ts';

const EVERY_MS = 5_000;
const PHONE = matchMedia('(max-width: 760px)');

/** A picture of the gateway: clients, the rules that allow them something, deployments, addresses. */
export function MapPage({ query }: PageProps) {
  const [client, deployment] = [query.get('client') ?? '', query.get('deployment') ?? ''];
  const path = `/api/map?${new URLSearchParams({ client, deployment })}`;
  const { data, error } = useFetch<MapView>(path, EVERY_MS);
  const now = snapshot.value;
  const addresses =
    now?.deployments.flatMap((each) => each.addresses.map((one) => [each, one] as const)) ?? [];
  const rates = useRates(
    now?.at ?? 0,
    new Map(addresses.map(([{ name }, { address, exchanges }]) => [`${name} ${address}`, exchanges])),
  );
  const shape = useShape();
  if (error !== undefined) return <p class="down">{error}</p>;
  if (now === undefined || data === undefined) return <p class="muted">Asking the gateway …</p>;
  const shown = now.deployments.filter(({ name }) =>
    data.ways.some((way) => way.deployment === name || (client === '' && deployment === '')),
  );
  const { nodes, edges } = graphOf(data.ways, shown.slice(0, MOST), rates);
  return (
    <section class="panel" aria-label="Map">
      <div class="filters">
        <Choice name="client" value={client} options={now.clients.map(({ name }) => name)} />
        <Choice name="deployment" value={deployment} options={now.deployments.map(({ name }) => name)} />
        <span class="muted small">
          Requests per second. A dashed line is idle.
          {data.more > 0 && ` ${count(data.more)} ways more: choose a client or a deployment.`}
        </span>
      </div>
      {nodes.length === 0 ? (
        <p class="muted">No rules and no requests.</p>
      ) : (
        <Picture layout={layOut(nodes, edges, shape)} shape={shape} />
      )}
    </section>
  );
}

/** Deployments in one picture at most, the first ones. */
const MOST = 20;

function useShape(): Shape {
  const [isNarrow, setNarrow] = useState(PHONE.matches);
  useEffect(() => {
    const onChange = (): void => setNarrow(PHONE.matches);
    PHONE.addEventListener('change', onChange);
    return () => PHONE.removeEventListener('change', onChange);
  }, []);
  return isNarrow ? NARROW : WIDE;
}

interface ChoiceProps {
  readonly name: 'client' | 'deployment';
  readonly value: string;
  readonly options: readonly string[];
}

function Choice({ name, value, options }: ChoiceProps) {
  return (
    <label>
      {name === 'client' ? 'Client' : 'Deployment'}{' '}
      <select value={value} onChange={({ currentTarget }) => changeQuery({ [name]: currentTarget.value })}>
        <option value="">all</option>
        {options
          .filter((option) => option !== '')
          .map((option) => (
            <option key={option}>{option}</option>
          ))}
      </select>
    </label>
  );
}

interface Graph {
  readonly nodes: Node[];
  readonly edges: Edge[];
}

/** `rates`: of exchanges with an address of a deployment, by their names. */
function graphOf(
  ways: readonly WayView[],
  deployments: readonly DeploymentView[],
  rates: (name: string) => number | undefined,
): Graph {
  const clients = Map.groupBy(ways, ({ client }) => client);
  const states = new Map(deployments.map(({ name, state }) => [name, state]));
  const nodes: Node[] = [];
  const edges: Edge[] = [];
  for (const [client, own] of clients) {
    const total = own.reduce((sum, { perSecond }) => sum + perSecond, 0);
    const refused = own.reduce((sum, { refusedPerSecond }) => sum + refusedPerSecond, 0);
    nodes.push({
      id: `client ${client}`,
      column: 'clients',
      label: client === '' ? 'unknown' : client,
      note: refused > 0 ? `${rate(total)}/s, ${rate(refused)} refused` : `${rate(total)}/s`,
      href: clientHref(client),
      state: stateOfFlow(total, refused),
    });
    for (const way of own) addWay(way, states, nodes, edges);
  }
  for (const view of deployments) addDeployment(view, rates, nodes, edges);
  return { nodes, edges };
}

function addWay(
  { client, deployment, rules, perSecond, refusedPerSecond }: WayView,
  states: ReadonlyMap<string, DeploymentView['state']>,
  nodes: Node[],
  edges: Edge[],
): void {
  const id = `rule ${client} ${deployment}`;
  const served = Math.max(0, perSecond - refusedPerSecond);
  const search = `#/audit?${new URLSearchParams({ client, deployment })}`;
  const name = client === '' ? 'unknown clients' : client;
  const state = stateOfFlow(perSecond, refusedPerSecond);
  nodes.push({
    id,
    column: 'rules',
    label: rulesText(rules),
    note: refusedPerSecond > 0 ? `${rate(refusedPerSecond)}/s refused` : deployment,
    href: clientHref(client),
    state,
  });
  edges.push({
    from: `client ${client}`,
    to: id,
    perSecond,
    state,
    href: search,
    title: `${name} to ${deployment || 'no deployment'}: ${rate(perSecond)} per second, ${rate(refusedPerSecond)} refused`,
  });
  if (rules.length === 0) return;
  edges.push({
    from: id,
    to: `deployment ${deployment}`,
    perSecond: served,
    state: served === 0 ? 'idle' : (states.get(deployment) ?? 'ok'),
    href: search,
    title: `allowed to ${deployment}: ${rate(served)} per second`,
  });
}

function addDeployment(
  view: DeploymentView,
  rates: (name: string) => number | undefined,
  nodes: Node[],
  edges: Edge[],
): void {
  const { name, state, perSecond, addresses } = view;
  const href = `#/deployments/${encodeURIComponent(name)}`;
  nodes.push({
    id: `deployment ${name}`,
    column: 'deployments',
    label: name,
    note: `${state}, ${rate(perSecond.requests)}/s`,
    href,
    state,
  });
  for (const each of addresses) {
    const id = `address ${name} ${each.address}`;
    const perAddress = rates(`${name} ${each.address}`);
    nodes.push({
      id,
      column: 'addresses',
      label: each.address,
      note: each.health,
      href,
      state: stateOf(each),
    });
    edges.push({
      from: `deployment ${name}`,
      to: id,
      perSecond: perAddress,
      state: each.health === 'failing' ? 'down' : perAddress === 0 ? 'idle' : 'ok',
      href,
      title: `${name} at ${each.address}: ${each.health}, circuit ${each.circuit}${perAddress === undefined ? '' : `, ${rate(perAddress)} exchanges per second`}`,
    });
  }
}

function stateOf({ health, circuit }: AddressView): Node['state'] {
  if (health === 'failing') return 'down';
  return circuit === 'closed' ? 'ok' : 'degraded';
}

function stateOfFlow(perSecond: number, refusedPerSecond: number): Node['state'] {
  if (perSecond === 0) return 'idle';
  return refusedPerSecond > 0 ? 'degraded' : 'ok';
}

function clientHref(client: string): string {
  return client === '' ? '#/clients' : `#/clients/${encodeURIComponent(client)}`;
}

/** For a single rule the end of its path: `allow[0]` of `clients[3].allow[0]`. */
function rulesText(rules: readonly string[]): string {
  const [first = 'no rule'] = rules;
  return rules.length > 1 ? `${rules.length} rules` : first.slice(first.lastIndexOf('.') + 1);
}

interface PictureProps {
  readonly layout: Layout;
  readonly shape: Shape;
}

/** Width of a character of the labels. */
const CHARACTER = { label: 7.4, note: 6.2 } as const;

/** Its parts are links in the order of their columns, so that a keyboard goes from client to address. */
function Picture({ layout: { nodes, edges, height }, shape }: PictureProps) {
  const { width, nodeHeight } = shape;
  return (
    <figure aria-label="Ways of requests">
      <svg class={`map ${shape === NARROW ? 'narrow' : ''}`} viewBox={`-2 -2 ${width + 4} ${height + 4}`}>
        <title>Ways of requests</title>
        {edges.map((edge) => (
          <a key={`${edge.from} ${edge.to}`} href={edge.href} class={`edge ${edge.state}`}>
            <title>{edge.title}</title>
            <path class="reach" d={edge.path} />
            <path class="line" d={edge.path} stroke-width={edge.weight} />
            {edge.perSecond !== undefined && edge.perSecond > 0 && (
              <text x={edge.x} y={edge.y - 5} text-anchor="middle">
                {rate(edge.perSecond)}
              </text>
            )}
          </a>
        ))}
        {nodes.map(({ id, label, note, href, state, x, y, width: own }) => (
          <a key={id} href={href} class={`node ${state}`}>
            <title>{`${label}: ${note}`}</title>
            <rect x={x} y={y} width={own} height={nodeHeight} rx={8} />
            {own > 40 && (
              <>
                <text x={x + 10} y={y + 19}>
                  {cut(label, (own - 18) / (shape === NARROW ? CHARACTER.note : CHARACTER.label))}
                </text>
                <text class="note" x={x + 10} y={y + 35}>
                  {cut(note, (own - 18) / CHARACTER.note)}
                </text>
              </>
            )}
          </a>
        ))}
      </svg>
    </figure>
  );
}

function cut(text: string, most: number): string {
  return text.length <= most ? text : `${text.slice(0, Math.max(1, Math.floor(most) - 1))}…`;
}
