import type { ComponentChildren } from 'preact';
import { useId } from 'preact/hooks';

interface PanelProps {
  /** Left out: it has none. */
  readonly heading?: string;
  /** Names it for screen readers; left out: its heading does. */
  readonly label?: string;
  readonly class?: string;
  readonly children: ComponentChildren;
}

/** A part of a page. */
export function Panel({ heading, label = heading, class: name = '', children }: PanelProps) {
  return (
    <section class={`panel ${name}`} aria-label={label}>
      {heading !== undefined && <h2>{heading}</h2>}
      {children}
    </section>
  );
}

/** In place of what is fetched: that it is to come, or why it does not. */
export function Pending({ error }: { readonly error?: string | undefined }) {
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

/** Attributes that the input of a field takes from its frame. */
interface Shared {
  readonly id: string;
  readonly 'aria-invalid': boolean;
  readonly 'aria-describedby': string | undefined;
}

interface FieldFrameProps {
  readonly label: string;
  /** A sentence with what is wrong with the value; empty: nothing. */
  readonly error?: string;
  readonly class?: string;
  /** Makes the input with these attributes. */
  readonly children: (shared: Shared) => ComponentChildren;
}

/** A label, its input, and below it what is wrong with the value. */
export function FieldFrame({ label, error = '', class: name = '', children }: FieldFrameProps) {
  const id = useId();
  const errorId = useId();
  const isWrong = error !== '';
  return (
    <div class={`field ${name}`}>
      <label for={id}>{label}</label>{' '}
      {children({
        id,
        'aria-invalid': isWrong,
        'aria-describedby': isWrong ? errorId : undefined,
      })}
      {isWrong && (
        <p id={errorId} class="down small" role="alert">
          {error}
        </p>
      )}
    </div>
  );
}

interface ChoiceProps extends Pick<FieldFrameProps, 'label' | 'error'> {
  readonly value: string;
  /** Values with their texts; a name is both. */
  readonly options: readonly (string | readonly [value: string, text: string])[];
  /** Text of the choice of nothing; left out: there is none. */
  readonly none?: string;
  /** Its name in a form. */
  readonly name?: string;
  readonly onChange?: (value: string) => void;
}

/** A choice of one of several values. */
export function Choice({ label, error = '', value, options, none, name, onChange }: ChoiceProps) {
  const pairs = options.map((option) => (typeof option === 'string' ? ([option, option] as const) : option));
  // A shared address can name something that is not configured any more.
  const isKnown = value === '' || pairs.some(([each]) => each === value);
  const all = [
    ...(none === undefined ? [] : [['', none] as const]),
    ...(isKnown ? [] : [[value, value] as const]),
    ...pairs,
  ];
  return (
    <FieldFrame label={label} error={error}>
      {(shared) => (
        <select {...shared} name={name} onChange={({ currentTarget }) => onChange?.(currentTarget.value)}>
          {all.map(([each, text]) => (
            <option key={each} value={each} selected={each === value}>
              {text}
            </option>
          ))}
        </select>
      )}
    </FieldFrame>
  );
}
