import type { ComponentChildren } from 'preact';
import { useId, useRef } from 'preact/hooks';

/** A criterion of a form: its name in the address, its label, and an example of a value. */
export type Field = readonly [name: string, label: string, example?: string];

interface Shared {
  readonly id: string;
  readonly 'aria-invalid': boolean;
  readonly 'aria-describedby': string | undefined;
}

interface FieldFrameProps {
  readonly label: string;
  /** A sentence with what is wrong with the value; empty: nothing. */
  readonly error: string;
  /** Makes the input with these attributes. */
  readonly children: (shared: Shared) => ComponentChildren;
}

/** A label, its input, and below it what is wrong with the value. */
export function FieldFrame({ label, error, children }: FieldFrameProps) {
  const id = useId();
  const errorId = useId();
  const isWrong = error !== '';
  return (
    <div class="field">
      <label for={id}>{label}</label>
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

interface TimeFieldProps {
  readonly field: Field;
  readonly value: string;
  readonly error: string;
}

/** A time as text, such as "2d ago", which the picker of the browser can write, too. */
export function TimeField({ field: [name, label, example = ''], value, error }: TimeFieldProps) {
  const text = useRef<HTMLInputElement>(null);
  const picker = useRef<HTMLInputElement>(null);
  return (
    <FieldFrame label={label} error={error}>
      {(shared) => (
        <span class="time">
          <input
            {...shared}
            ref={text}
            name={name}
            type="search"
            spellcheck={false}
            autocapitalize="off"
            placeholder={example}
            defaultValue={value}
          />
          <button
            type="button"
            aria-label={`Pick the time of ${label}`}
            onClick={() => picker.current?.showPicker()}
          >
            <span aria-hidden="true">▾</span>
          </button>
          <input
            ref={picker}
            class="picker"
            type="datetime-local"
            tabIndex={-1}
            aria-hidden="true"
            onChange={({ currentTarget }) => {
              // It is the time of this browser; the log has UTC.
              const at = new Date(currentTarget.value);
              if (text.current !== null && !Number.isNaN(at.getTime())) {
                text.current.value = `${at.toISOString().slice(0, 16)}Z`;
              }
            }}
          />
        </span>
      )}
    </FieldFrame>
  );
}
