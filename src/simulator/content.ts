/** A text, or elements by name; a list repeats its element. */
export type Content = string | { readonly [name: string]: Content | readonly Content[] };

/** Fictional submissions with their authors, by identifier. */
export const submissions: ReadonlyMap<string, Content> = new Map(
  [
    submission('DEMO-2026-0001', 'Salt & light: how tide pools remember', [
      author('1', 'Ada', 'Lindqvist', 'ada.lindqvist@example.org', 'Institute of Shores', true),
      author('2', 'Tomás', 'Ó Briain', 'tomas@example.org', 'Institute of Shores', false),
      author('3', 'Mei', 'Tanaka', 'mei.tanaka@example.net', 'Harbour University', false),
    ]),
    submission('DEMO-2026-0002', 'On the error of "small" samples', [
      author('1', 'Kwame', 'Mensah', 'kwame.mensah@example.org', 'School of Counting', true),
      author('2', 'Ingrid', "D'Angelo", 'ingrid@example.com', 'School of Counting', false),
    ]),
    submission('DEMO-2026-0003', 'When p < 0.05 is not enough', [
      author('1', 'Zoë', 'Nowak', 'zoe.nowak@example.net', 'Harbour University', true),
      author('2', 'Ravi', 'Iyer', 'ravi.iyer@example.org', 'College of Rivers', false),
      author('3', 'Lena', 'Groß', 'lena.gross@example.org', 'College of Rivers', false),
      author('4', '明', '李', 'ming.li@example.com', '河流学院', false),
    ]),
    submission('DEMO-2026-0004', 'A map of quiet places', [
      author('1', 'Sofía', 'Paredes', 'sofia.paredes@example.org', 'Bureau of Maps', true),
    ]),
    submission('DEMO-2026-0005', 'Bridges that hum', [
      author('1', 'Owen', 'Clarke', 'owen.clarke@example.com', 'College of Rivers', true),
      author('2', 'Amina', 'Diallo', 'amina.diallo@example.net', 'Bureau of Maps', false),
    ]),
  ].map((entry) => [entry.submissionId, entry]),
);

/** Fictional abstracts, by identifier. */
export const abstracts: ReadonlyMap<string, Content> = new Map(
  [
    abstract('A-1001', 'Tide pools as archives', 'Pools keep a record of storms; we read <sixty> of them.'),
    abstract('A-1002', 'Counting without numbers', 'Crows & children agree on what "more" means.'),
    abstract('A-1003', 'The hum of bridges', 'We measured 40 bridges at night. Most hum in B♭.'),
    abstract('A-1004', 'Quiet places', 'Silence below 20 dB is rare within 5 km of a road.'),
    abstract('A-1005', 'Small samples', 'What can be said from n = 3, and what can not.'),
  ].map((entry) => [entry.abstractId, entry]),
);

function submission(submissionId: string, submissionTitle: string, authors: readonly Content[]) {
  return { submissionId, submissionTitle, authors: { author: authors } };
}

function author(
  order: string,
  firstName: string,
  lastName: string,
  emailAddress: string,
  institution: string,
  corresponding: boolean,
) {
  return {
    authorOrder: order,
    firstName,
    lastName,
    emailAddress,
    affiliation: { institution },
    isCorresponding: String(corresponding),
  };
}

function abstract(abstractId: string, abstractTitle: string, abstractText: string) {
  return { abstractId, abstractTitle, abstractText, abstractStatus: 'Accepted' };
}
