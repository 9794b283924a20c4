import type { ComponentChildren } from 'preact';

interface PanelProps {
  /** Names it for screen readers. */
  readonly label: string;
  /** Left out: it has no heading. */
  readonly heading?: string;
  readonly class?: string;
  readonly children: ComponentChildren;
}

/** A part of a page. */
export function Panel({ label, heading, class: name = '', children }: PanelProps) {
  return (
    <section class={`panel ${name}`} aria-label={label}>
      {heading !== undefined && <h2>{heading}</h2>}
      {children}
    </section>
  );
}

/** In place of what is fetched: that it is to come, or why it does not. */
export function Pending({ error }: { readonly error: string | undefined }) {
  return error === undefined ? <p class="muted">Loading …</p> : <p class="down">{error}</p>;
}

/** Tells what went wrong, if anything did; screen readers announce it. */
export function Alert({ error }: { readonly error: string | undefined }) {
  return error === undefined ? null : (
    <p class="down" role="alert">
      {error}
    </p>
  );
}

interface NotesProps {
  readonly label: string;
  readonly notes: readonly string[];
}

/** The reasons why a result is not complete. */
export function Notes({ label, notes }: NotesProps) {
  return notes.length === 0 ? null : (
    <ul class="notes degraded" aria-label={label}>
      {notes.map((note) => (
        <li key={note}>{note}</li>
      ))}
    </ul>
  );
}

interface ChoiceProps {
  readonly label: string;
  /** Empty: all. */
  readonly value: string;
  readonly options: readonly string[];
  readonly onChange: (value: string) => void;
}

/** A choice of one of several names, or of all. */
export function Choice({ label, value, options, onChange }: ChoiceProps) {
  return (
    <label>
      {label}{' '}
      <select value={value} onChange={({ currentTarget }) => onChange(currentTarget.value)}>
        <option value="">all</option>
        {options.map((option) => (
          <option key={option}>{option}</option>
        ))}
      </select>
    </label>
  );
}
