import { useEffect, useState } from 'preact/hooks';
import { capitalized } from '../../../base/units.ts';
import type { DeploymentView, MapView, WayView } from '../../view.ts';
import { useFetch } from '../api.ts';
import { count, counted, rate } from '../format.ts';
import { knownNames, snapshot, useRates } from '../live.ts';
import { type Edge, LINE_HEIGHT, layOut, type Node, PADDING } from '../parts/graph.ts';
import { changeQuery, clientHref, deploymentHref, type PageProps } from '../parts/links.tsx';
import { Choice, Panel, Pending } from '../parts/panel.tsx';
import { addressState } from '../parts/state.tsx';

const EVERY_MS = 5_000;
/** Windows in which the letters of the picture would be too small. */
const NARROW = matchMedia('(max-width: 1200px)');

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
  const isNarrow = useMatch(NARROW);
  if (error !== undefined || now === undefined || data === undefined) return <Pending error={error} />;
  const shown = now.deployments.filter(({ name }) =>
    data.ways.some((way) => way.deployment === name || (client === '' && deployment === '')),
  );
  const graph = graphOf(data.ways, shown.slice(0, MOST), rates);
  return (
    <Panel label="Map">
      <div class="filters">
        {(['client', 'deployment'] as const).map((kind) => (
          <Choice
            key={kind}
            label={capitalized(kind)}
            value={query.get(kind) ?? ''}
            options={knownNames()[kind]}
            none="all"
            onChange={(chosen) => changeQuery({ [kind]: chosen })}
          />
        ))}
        <span class="muted small">
          Numbers are requests per second. A dashed line has none now.
          {data.more > 0 && ` ${count(data.more)} more rules: choose a client or a deployment.`}
          {shown.length > MOST && (
            <>
              {' '}
              <a href="#/">{counted(shown.length - MOST, 'more deployment')}</a> on the overview.
            </>
          )}
        </span>
      </div>
      {graph.nodes.length === 0 ? (
        <p class="muted">No rules and no requests.</p>
      ) : isNarrow ? (
        <Trees {...graph} />
      ) : (
        <Picture {...graph} />
      )}
    </Panel>
  );
}

/** Deployments in one picture at most, the first ones. */
const MOST = 20;

function useMatch(query: MediaQueryList): boolean {
  const [matches, setMatches] = useState(query.matches);
  useEffect(() => {
    const onChange = (): void => setMatches(query.matches);
    query.addEventListener('change', onChange);
    return () => query.removeEventListener('change', onChange);
  }, [query]);
  return matches;
}

interface Graph {
  readonly nodes: readonly Node[];
  readonly edges: readonly Edge[];
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
  // The log cannot be searched for an empty client.
  const href = client === '' ? clientHref(client) : `#/audit?${new URLSearchParams({ client, deployment })}`;
  const name = client === '' ? 'unknown clients' : client;
  const state = stateOfFlow(perSecond, refusedPerSecond);
  nodes.push({
    id,
    column: 'rules',
    label: deployment === '' ? 'no deployment' : deployment,
    note:
      refusedPerSecond > 0 ? `${rulesText(rules)}, ${rate(refusedPerSecond)}/s refused` : rulesText(rules),
    href: clientHref(client),
    state,
  });
  edges.push({
    from: `client ${client}`,
    to: id,
    perSecond,
    state,
    href,
    title: `${name} to ${deployment || 'no deployment'}: ${rate(perSecond)} per second, ${rate(refusedPerSecond)} refused`,
  });
  if (rules.length === 0) return;
  edges.push({
    from: id,
    to: `deployment ${deployment}`,
    perSecond: served,
    state: served === 0 ? 'idle' : (states.get(deployment) ?? 'ok'),
    href,
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
  const href = deploymentHref(name);
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
      note: each.health === 'unknown' ? 'not used yet' : addressState(each),
      href,
      state: each.health === 'unknown' ? 'idle' : addressState(each),
    });
    edges.push({
      from: `deployment ${name}`,
      to: id,
      perSecond: perAddress,
      state: perAddress === 0 && each.health !== 'failing' ? 'idle' : addressState(each),
      href,
      title: `${name} at ${each.address}: ${addressState(each)}, circuit ${each.circuit}${perAddress === undefined ? '' : `, ${rate(perAddress)} exchanges per second`}`,
    });
  }
}

function stateOfFlow(perSecond: number, refusedPerSecond: number): Node['state'] {
  if (perSecond === 0) return 'idle';
  return refusedPerSecond > 0 ? 'degraded' : 'ok';
}

/** For a single rule the end of its path: `allow[0]` of `clients[3].allow[0]`. */
function rulesText(rules: readonly string[]): string {
  const [first = 'no rule'] = rules;
  return rules.length > 1 ? `${rules.length} rules` : first.slice(first.lastIndexOf('.') + 1);
}

/** Its parts are links in the order of their columns, so that a keyboard goes from client to address. */
function Picture(graph: Graph) {
  const { headings, nodes, edges, width, height } = layOut(graph.nodes, graph.edges);
  return (
    <figure aria-label="Requests on their way">
      <svg class="map" viewBox={`-2 -2 ${width + 4} ${height + 4}`}>
        <title>Requests on their way</title>
        {headings.map(({ text, x }) => (
          <text key={text} class="note" x={x} y={11}>
            {text}
          </text>
        ))}
        {edges.map((edge) => (
          <a key={`${edge.from} ${edge.to}`} href={edge.href} class={`edge ${edge.state}`}>
            <title>{edge.title}</title>
            <path class="reach" d={edge.path} />
            <path class="line" d={edge.path} stroke-width={edge.weight} />
            {edge.perSecond !== undefined && edge.perSecond > 0 && (
              <text x={edge.x} y={edge.y} text-anchor={edge.anchor}>
                {rate(edge.perSecond)}
              </text>
            )}
          </a>
        ))}
        {nodes.map(({ id, label, lines, note, href, state, ...place }) => (
          <a key={id} href={href} class={`node ${state}`}>
            <title>{`${label}: ${note}`}</title>
            <rect x={place.x} y={place.y} width={place.width} height={place.height} rx={8} />
            {lines.map((line, index) => (
              <text key={line} x={place.x + PADDING} y={place.y + 19 + index * LINE_HEIGHT}>
                {line}
              </text>
            ))}
            <text class="note" x={place.x + PADDING} y={place.y + place.height - 9}>
              {note}
            </text>
          </a>
        ))}
      </svg>
    </figure>
  );
}

/** In place of the picture on a narrow screen: each client with its rules, then each deployment with its addresses. */
function Trees({ nodes, edges }: Graph) {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const roots = Map.groupBy(nodes, ({ column }) => column);
  return (
    <>
      {(['clients', 'deployments'] as const).map((column) => (
        <section key={column} aria-label={capitalized(column)}>
          <h2>{column === 'clients' ? 'Clients and their rules' : 'Deployments and their addresses'}</h2>
          <ul class="tree">
            {roots.get(column)?.map((root) => (
              <li key={root.id}>
                <Branch node={root} />
                <ul>
                  {edges
                    .filter(({ from }) => from === root.id)
                    .map((edge) => (
                      <li key={edge.to} class={edge.state}>
                        <Branch node={byId.get(edge.to)} perSecond={edge.perSecond} />
                      </li>
                    ))}
                </ul>
              </li>
            ))}
          </ul>
        </section>
      ))}
    </>
  );
}

interface BranchProps {
  readonly node: Node | undefined;
  /** Undefined: it is in the note of the node. */
  readonly perSecond?: number | undefined;
}

function Branch({ node, perSecond }: BranchProps) {
  if (node === undefined) return null;
  const { label, note, href, state } = node;
  return (
    <a href={href} class={state}>
      <span>
        {label} <span class="detail">{note}</span>
      </span>
      {perSecond !== undefined && <span class="detail">{rate(perSecond)}/s</span>}
    </a>
  );
}
