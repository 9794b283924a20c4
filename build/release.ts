import { readFileSync } from 'node:fs';
import { parse } from 'yaml';

// `npm run release:check -- v1.2.3` says whether a tag fits what would be released.

const read = (name: string): string => readFileSync(new URL(`../${name}`, import.meta.url), 'utf8');

/** Returns what a release of this tag, `v` and a version, would contradict; nothing if it may go out. */
export function releaseIssues(tag: string): string[] {
  const version = tag.replace(/^v/, '');
  const chart = parse(read('deploy/helm/digest-gateway/Chart.yaml'));
  const found = {
    'version in package.json': JSON.parse(read('package.json')).version,
    'version in package-lock.json': JSON.parse(read('package-lock.json')).version,
    'version of the chart': chart.version,
    'appVersion of the chart': chart.appVersion,
    'first version in CHANGELOG.md': /^## (\S+)/m.exec(read('CHANGELOG.md'))?.[1],
  };
  return Object.entries(found)
    .filter(([, each]) => each !== version)
    .map(([where, each]) => `The tag is ${tag}, but the ${where} is ${each}.`);
}

if (import.meta.main) {
  const issues = releaseIssues(process.argv[2] ?? '');
  for (const issue of issues) process.stderr.write(`${issue}\n`);
  process.exitCode = issues.length === 0 ? 0 : 1;
}
