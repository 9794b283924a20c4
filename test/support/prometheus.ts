import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parse, stringify } from 'yaml';
import { repository } from './repository.ts';
import { startServer } from './server-process.ts';
import { until } from './until.ts';

const DEPLOYED = join(repository, 'deploy/prometheus');

/** One series of an answer, and its value now. */
export interface Sample {
  readonly metric: Readonly<Record<string, string>>;
  readonly value: number;
}

/** A Prometheus of the system's packages. */
export interface Prometheus {
  /** @throws Error with what Prometheus says of a query that it cannot run */
  query(expression: string): Promise<Sample[]>;
  /** Resolves with the samples once there are some and they pass. */
  sees(expression: string, passes?: (samples: readonly Sample[]) => boolean): Promise<Sample[]>;
  /** The rules that are loaded, once each has been evaluated: `ok`, or what was wrong. */
  rules(): Promise<{ name: string; health: string }[]>;
  close(): Promise<void>;
}

/** Runs Prometheus with the configuration and the rules of deploy/, in front of one gateway and more often. */
export async function startPrometheus(control: string, token: string): Promise<Prometheus> {
  const server = await startServer({
    async prepare({ folder, port }) {
      const config = parse(await readFile(join(DEPLOYED, 'prometheus.yml'), 'utf8'));
      config.global = { scrape_interval: '200ms', evaluation_interval: '200ms' };
      config.rule_files = config.rule_files.map((name: string) => join(DEPLOYED, name));
      config.scrape_configs[0].static_configs = [{ targets: [new URL(control).host] }];
      await writeFile(join(folder, config.scrape_configs[0].authorization.credentials_file), token);
      await writeFile(join(folder, 'prometheus.yml'), stringify(config));
      return [
        'prometheus',
        `--config.file=${folder}/prometheus.yml`,
        `--storage.tsdb.path=${folder}/data`,
        `--web.listen-address=127.0.0.1:${port}`,
        '--log.level=error',
      ];
    },
    async answers({ port }) {
      const ready = await fetch(`http://127.0.0.1:${port}/-/ready`).catch(() => undefined);
      await ready?.body?.cancel();
      return ready?.ok === true;
    },
  });
  const api = `http://127.0.0.1:${server.place.port}/api/v1`;
  const query = async (expression: string): Promise<Sample[]> => {
    const body = new URLSearchParams({ query: expression });
    const answer = (await (await fetch(`${api}/query`, { method: 'POST', body })).json()) as Answer;
    if (answer.status !== 'success') throw new Error(`${answer.error}: ${expression}`);
    return answer.data.result.map(({ metric, value: [, value] }) => ({ metric, value: Number(value) }));
  };
  return {
    query,
    async sees(expression, passes = () => true) {
      let samples: Sample[] = [];
      await until(async () => {
        samples = await query(expression);
        return samples.length > 0 && passes(samples);
      });
      return samples;
    },
    async rules() {
      let rules: { name: string; health: string }[] = [];
      await until(async () => {
        const { data } = (await (await fetch(`${api}/rules`)).json()) as RulesAnswer;
        rules = data.groups.flatMap((group) => group.rules);
        return rules.every(({ health }) => health !== 'unknown');
      });
      return rules;
    },
    close: () => server.close(),
  };
}

interface RulesAnswer {
  readonly data: { readonly groups: { readonly rules: { name: string; health: string }[] }[] };
}

type Answer =
  | { status: 'error'; error: string }
  | { status: 'success'; data: { result: { metric: Record<string, string>; value: [number, string] }[] } };
