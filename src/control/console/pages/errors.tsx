import type { ErrorKindView } from '../../view.ts';
import { useFetch } from '../api.ts';
import { counted } from '../format.ts';
import { snapshot } from '../live.ts';
import { Errors } from '../parts/errors.tsx';
import { codeLink, type PageProps, searchLink } from '../parts/links.tsx';
import { Panel, Pending } from '../parts/panel.tsx';
import { type Column, type Fact, Facts, Table } from '../parts/table.tsx';

const CODES = '/api/errors';

/** The latest errors of each code and deployment, and what every code means. */
export function ErrorsPage() {
  const now = snapshot.value;
  const { data, error } = useFetch<readonly ErrorKindView[]>(CODES);
  if (now === undefined) return <Pending />;
  const { errors } = now;
  return (
    <>
      <Panel heading="Latest errors">
        <Errors errors={errors} now={now.at} empty="No errors since the start." />
      </Panel>
      <Panel label="Codes" heading="What each code means">
        {data === undefined ? (
          <Pending error={error} />
        ) : (
          <Table
            label="Codes"
            columns={COLUMNS}
            rows={data}
            keyOf={({ code }) => code}
            textOf={({ code, title, status }) => `${code} ${title} ${status}`}
            noun="code"
            empty=""
          />
        )}
      </Panel>
    </>
  );
}

const COLUMNS: readonly Column<ErrorKindView>[] = [
  { label: 'Code', cell: ({ code }) => codeLink(code), sortBy: ({ code }) => code, class: 'whole' },
  { label: 'Status', cell: ({ status }) => status, sortBy: ({ status }) => status, class: 'beside' },
  { label: 'Cause', cell: ({ cause }) => prose(cause) },
  { label: 'What to do', cell: ({ remedy }) => prose(remedy) },
];

/** One code: what it means, what to do, and its latest errors. */
export function ErrorPage({ params }: PageProps) {
  const { code = '' } = params;
  const now = snapshot.value;
  const { data, error } = useFetch<readonly ErrorKindView[]>(CODES);
  if (error !== undefined || data === undefined || now === undefined) return <Pending error={error} />;
  const kind = data.find((each) => each.code === code);
  if (kind === undefined) return <p>The gateway has no error of this code.</p>;
  const errors = now.errors.filter((each) => each.code === code);
  const facts: Fact[] = [
    ['Title', kind.title],
    ['Status', kind.status],
    ['Cause', prose(kind.cause)],
    ['What to do', prose(kind.remedy)],
    ['Requests', <>in the audit log: {searchLink('code', code)}</>],
  ];
  return (
    <>
      <Panel label="Meaning">
        <Facts facts={facts} />
      </Panel>
      <Panel heading="Latest errors">
        {errors.length > 0 && (
          <p class="muted">{counted(errors.length, 'deployment')} with errors of this code.</p>
        )}
        <Errors errors={errors} now={now.at} empty="None of the latest errors has this code." />
      </Panel>
    </>
  );
}

/** The text of the documentation, in which names are between backticks. */
function prose(text: string) {
  return (
    <span>
      {text
        .split('`')
        .map((part, index) => (index % 2 === 0 ? part : <code key={`${index} ${part}`}>{part}</code>))}
    </span>
  );
}
