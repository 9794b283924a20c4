import { Gauge, type Registry, type RegistryContentType } from 'prom-client';

type AnyRegistry = Registry<RegistryContentType>;

/**
 * Adds the share of open files in those that this process may open, where the system says how many these are. Sums of
 * several processes would hide one that has none left.
 */
export function addOpenFilesRatio(registry: AnyRegistry): void {
  if (registry.getSingleMetric('process_max_fds') === undefined) return;
  new Gauge({
    name: 'digest_gateway_open_files_ratio',
    help: 'Open files by those that the process may open; with workers, of the process with the largest share',
    registers: [registry],
    aggregator: 'max',
    async collect() {
      this.set((await valueIn(registry, 'process_open_fds')) / (await valueIn(registry, 'process_max_fds')));
    },
  });
}

/** NaN: there is no such value. */
async function valueIn(registry: AnyRegistry, name: string): Promise<number> {
  const { values = [] } = (await registry.getSingleMetric(name)?.get()) ?? {};
  return values[0]?.value ?? Number.NaN;
}
