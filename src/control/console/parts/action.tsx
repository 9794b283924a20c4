import { signal } from '@preact/signals';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { ActionResultView, ActionsView, FindingView, PendingActionView } from '../../action-view.ts';
import { type Fetched, messageOf, post, useFetch } from '../api.ts';
import { counted } from '../format.ts';
import { Panel } from './panel.tsx';
import { NextStep } from './state.tsx';

/** An action with its target, as `/api/actions` takes it. */
interface ActionBody {
  readonly action: PendingActionView['action'];
  readonly deployment?: string;
  readonly credential?: string;
  readonly version?: string;
}

/** Results that a page shows, the latest first. One that arrives after its page is left shows on the next. */
const results = signal<readonly ActionResultView[]>([]);

const KEPT = 5;

/** Asks the gateway whether this session may act. */
export function useAllowed(): Fetched<ActionsView> {
  return useFetch<ActionsView>('/api/actions');
}

interface ActionProps {
  /** Text of the button. */
  readonly label: string;
  /** Names the button where several have the same text. */
  readonly name?: string;
  readonly body: ActionBody;
}

/** A button that asks the gateway what the action will do, and carries it out when that is confirmed. */
export function ActionButton({ label, name, body }: ActionProps) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <button type="button" class="action" aria-label={name} onClick={() => setOpen(true)}>
        {label}
      </button>
      {open && <ConfirmDialog title={name ?? label} body={body} onClose={() => setOpen(false)} />}
    </>
  );
}

interface ConfirmProps {
  readonly title: string;
  readonly body: ActionBody;
  readonly onClose: () => void;
}

/** The dialog keeps the focus while it is open, and the browser gives it back to the button. Escape closes it. */
function ConfirmDialog({ title, body, onClose }: ConfirmProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [pending, setPending] = useState<PendingActionView>();
  const [error, setError] = useState<string>();
  const [running, setRunning] = useState(false);
  const closed = useRef(new AbortController());
  useEffect(() => {
    const { signal: ended } = closed.current;
    dialog.current?.showModal();
    post<PendingActionView>('/api/actions', body, ended).then(setPending, (reason: unknown) => {
      if (!ended.aborted) setError(messageOf(reason));
    });
    return () => closed.current.abort();
  }, []);
  const confirm = (): void => {
    if (pending === undefined) return;
    setRunning(true);
    // Without an abort signal: the gateway finishes the action although the dialog closes.
    post<ActionResultView>(`/api/actions/${pending.id}/confirm`, {}).then(
      (result) => {
        addResult(result);
        dialog.current?.close();
      },
      (reason: unknown) => {
        setRunning(false);
        if (!closed.current.signal.aborted) setError(messageOf(reason));
        else addFailure(body.action, reason);
      },
    );
  };
  return (
    <dialog ref={dialog} aria-label={title} onClose={onClose}>
      <h2>{title}</h2>
      {pending === undefined && error === undefined && <p class="muted">Loading …</p>}
      <ul>
        {pending?.effects.map((effect) => (
          <li key={effect}>{effect}</li>
        ))}
      </ul>
      <p role="alert" class="down">
        {error}
      </p>
      <p role="status" class="muted">
        {running && 'Running …'}
      </p>
      <div class="buttons">
        <button type="button" autofocus onClick={() => dialog.current?.close()}>
          {running || error !== undefined ? 'Close' : 'Cancel'}
        </button>
        {error === undefined && (
          <button type="button" class="confirm" disabled={pending === undefined || running} onClick={confirm}>
            Confirm
          </button>
        )}
      </div>
    </dialog>
  );
}

/** Shows a result on the page. */
export function addResult(result: ActionResultView): void {
  results.value = [result, ...results.value].slice(0, KEPT);
}

/** Shows on the page why an action failed. */
export function addFailure(action: PendingActionView['action'], reason: unknown): void {
  addResult({ action, result: `Failed: ${messageOf(reason)}`, notes: [] });
}

/** The results of the actions of this page. Screen readers announce a new one. */
export function Results() {
  useEffect(
    () => () => {
      results.value = [];
    },
    [],
  );
  return (
    <div role="status" class="results">
      {results.value.map((result, index) => (
        <Panel key={`${results.value.length - index}`} label={`Result of ${result.action}`}>
          <p>
            <b>{result.result}</b>
          </p>
          {result.notes.map((note) => (
            <p key={note}>{note}</p>
          ))}
          {result.findings !== undefined && <Findings findings={result.findings} />}
        </Panel>
      ))}
    </div>
  );
}

const CLASSES = { ok: 'ok', warn: 'degraded', fail: 'down' } as const;

/** Shows wrong findings first, and the others when somebody asks for them, or if nothing is wrong. */
function Findings({ findings }: { readonly findings: readonly FindingView[] }) {
  const well = findings.filter(({ mark }) => mark === 'ok');
  const wrong = findings.filter(({ mark }) => mark !== 'ok');
  return (
    <>
      <FindingList findings={wrong} />
      <details open={wrong.length === 0}>
        <summary>{counted(well.length, 'check')} ok</summary>
        <FindingList findings={well} />
      </details>
    </>
  );
}

function FindingList({ findings }: { readonly findings: readonly FindingView[] }) {
  return (
    <ul class="findings">
      {findings.map(({ deployment, check, subject, mark, saw, advice }, index) => (
        <li key={index}>
          <b class={CLASSES[mark]}>{mark}</b>{' '}
          <span>
            {[deployment, check, subject].filter(Boolean).join(' · ')}: {saw}
            <NextStep next={advice} />
          </span>
        </li>
      ))}
    </ul>
  );
}
