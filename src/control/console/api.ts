import { useCallback, useEffect, useState } from 'preact/hooks';

/** A request that the control plane refused, or that did not reach it. */
export class ApiError extends Error {
  /** Status of the response; 0 without one. */
  readonly status: number;
  /** Names of the parameters that are wrong. */
  readonly parameters: readonly string[];

  constructor(status: number, message: string, parameters: readonly string[] = []) {
    super(message);
    this.status = status;
    this.parameters = parameters;
  }
}

let isLeaving = false;

/** Sends the reader to `/login`, which keeps the page for afterwards. */
export function signIn(): void {
  // A second navigation would abort the first one.
  if (!isLeaving) location.assign(`/login${location.hash}`);
  isLeaving = true;
}

/**
 * Sends a request to the control plane and returns the JSON of its response. Rejects with an `ApiError` whose
 * message is the detail of the problem document. On 401 it sends the reader to `/login`.
 */
export async function callApi<Data>(path: string, init: RequestInit = {}): Promise<Data> {
  const response = await fetch(path, init).catch((error: unknown) => {
    if (init.signal?.aborted) throw error;
    throw new ApiError(0, 'The gateway is not reachable.');
  });
  if (response.status === 401) signIn();
  if (!response.ok) throw await errorOf(response);
  return (await response.json()) as Data;
}

/** Posts JSON to the control plane: `callApi`. */
export function post<Data>(path: string, body: object, signal?: AbortSignal): Promise<Data> {
  return callApi<Data>(path, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
    ...(signal !== undefined && { signal }),
  });
}

/** The sentence of an error. */
export function messageOf(reason: unknown): string {
  return reason instanceof Error ? reason.message : String(reason);
}

interface Refusal {
  readonly detail?: string;
  readonly title?: string;
  readonly parameters?: readonly string[];
}

async function errorOf(response: Response): Promise<ApiError> {
  const { status, headers } = response;
  const reason = `The gateway responded ${status}.`;
  if (headers.get('content-type')?.includes('json')) {
    const { detail, title, parameters } = (await response.json()) as Refusal;
    return new ApiError(status, detail ?? title ?? reason, parameters);
  }
  const text = (await response.text()).trim();
  return new ApiError(status, text === '' ? reason : text);
}

export interface Fetched<Data> {
  /** The latest data of this path; kept while it is fetched again. */
  readonly data: Data | undefined;
  /** A sentence if the last request failed. */
  readonly error: string | undefined;
  readonly loading: boolean;
  /** Fetches again. */
  reload(): void;
}

interface Result<Data> {
  readonly path: string | undefined;
  readonly data?: Data;
  readonly error?: string;
}

/**
 * Fetches JSON while the component is shown; the request is aborted when it goes or `path` changes.
 * `undefined` fetches nothing. With `everyMs` it fetches again at this interval, while the page is visible.
 */
export function useFetch<Data>(path: string | undefined, everyMs?: number): Fetched<Data> {
  const [result, setResult] = useState<Result<Data>>({ path: undefined });
  const [round, setRound] = useState(0);
  const reload = useCallback(() => setRound((before) => before + 1), []);
  useEffect(() => {
    if (path === undefined) return;
    const aborting = new AbortController();
    const { signal } = aborting;
    callApi<Data>(path, { signal }).then(
      (data) => {
        if (!signal.aborted) setResult({ path, data });
      },
      (reason: unknown) => {
        if (signal.aborted) return;
        setResult((before) => ({ ...(before.path === path && before), path, error: messageOf(reason) }));
      },
    );
    return () => aborting.abort();
  }, [path, round]);
  useEffect(() => {
    if (everyMs === undefined) return;
    const timer = setInterval(() => {
      if (!document.hidden) reload();
    }, everyMs);
    return () => clearInterval(timer);
  }, [everyMs, reload]);
  const current: Result<Data> = result.path === path ? result : { path };
  const { data, error } = current;
  return { data, error, loading: path !== undefined && data === undefined && error === undefined, reload };
}
