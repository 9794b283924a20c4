import { Router } from 'express';
import { z } from 'zod';
import type { Clock } from '../base/clock.ts';
import { Throttle } from '../base/throttle.ts';
import type { Admission } from './admission.ts';
import type { ClientDetailView, ConfigurationView, ExplanationView } from './client-view.ts';
import { ControlError, handler, jsonBody } from './control-error.ts';

/** Longest name and longest target in a request, in characters. */
const LONGEST_NAME = 256;
const LONGEST_TARGET = 8_192;
/** Time between two flight records, in milliseconds: each stops every worker for 100 ms, and takes 4 MB. */
const FLIGHT_PAUSE_MS = 10_000;

const nameOrNone = z.string().max(LONGEST_NAME).default('');

const explainSchema = z.strictObject({
  /** Empty: the anonymous one. */
  client: nameOrNone,
  /** The deployment whose host the request names; empty: the target alone names it. */
  deployment: nameOrNone,
  method: z.string().regex(/^[A-Z]{1,32}$/),
  target: z.string().min(1).max(LONGEST_TARGET),
});

/** A request to explain. */
export type ExplainRequest = z.output<typeof explainSchema>;

/**
 * Answers questions of the console about clients and rules, and of an operator about the last minutes. Nothing is
 * changed or sent.
 */
export interface Queries {
  /** @throws ControlError if there is no such client or deployment */
  explain(request: ExplainRequest): ExplanationView;
  /** Resolves to undefined if there is no such client. */
  client(name: string): Promise<ClientDetailView | undefined>;
  /** Resolves to the configuration in use as YAML, with defaults and without secrets. */
  configuration(): Promise<string>;
  /** Resolves to the flight records of all workers that respond in time, as lines of JSON. */
  flightRecord(): Promise<string>;
}

interface QueriesOptions {
  readonly admission: Admission;
  readonly queries: Queries;
  readonly clock: Clock;
  readonly onError: (error: unknown) => void;
}

/** Serves `/api/policy/explain`, `/api/clients/NAME`, `/api/configuration` and `/api/flight-record`. */
export function queriesRouter({ admission, queries, clock, onError }: QueriesOptions): Router {
  const router = Router();
  const explain = handler(onError, async (req, res) => {
    const { data } = explainSchema.safeParse(req.body);
    if (data === undefined) throw new ControlError('request-invalid');
    res.json(queries.explain(data));
  });
  router.post('/api/policy/explain', admission.requireRead, jsonBody('request-invalid'), explain);
  const client = handler(onError, async (req, res) => {
    const { name } = req.params;
    const found = await queries.client(String(name));
    if (found === undefined) throw new ControlError('client-unknown');
    res.json(found);
  });
  router.get('/api/clients/:name', admission.requireRead, client);
  const configuration = handler(onError, async (_req, res) => {
    res.json({ yaml: await queries.configuration() } satisfies ConfigurationView);
  });
  router.get('/api/configuration', admission.requireRead, configuration);
  const records = new Throttle(clock, 1, FLIGHT_PAUSE_MS);
  const flightRecord = handler(onError, async (_req, res) => {
    if (records.admit('flight record') === undefined) throw new ControlError('flight-record-pending');
    res.type('application/x-ndjson').send(await queries.flightRecord());
  });
  router.get('/api/flight-record', admission.requireRead, flightRecord);
  return router;
}
