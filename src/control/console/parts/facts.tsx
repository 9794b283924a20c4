import type { ComponentChildren } from 'preact';

export type Fact = readonly [term: string, description: ComponentChildren];

/** A list of terms with their descriptions. */
export function Facts({ facts }: { readonly facts: readonly Fact[] }) {
  return (
    <dl>
      {facts.map(([term, description], index) => (
        <div key={`${term} ${index}`}>
          <dt>{term}</dt>
          <dd>{description}</dd>
        </div>
      ))}
    </dl>
  );
}
