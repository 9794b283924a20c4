import { Gauge, type Registry, type RegistryContentType } from 'prom-client';
import { maxOpenFiles, openFiles } from '../base/open-files.ts';

const OPEN = 'process_open_fds';

/**
 * Replaces prom-client's count of open files, which it has on Linux, by one that also sets their share in those that the
 * process may open: to count 10,000 takes 10 ms. Sums of several processes would hide one that has none left.
 */
export function countOpenFiles(registry: Registry<RegistryContentType>): void {
  const counted = registry.getSingleMetric(OPEN);
  if (counted === undefined) return;
  registry.removeSingleMetric(OPEN);
  const max = maxOpenFiles();
  const ratio = new Gauge({
    name: 'digest_gateway_open_files_ratio',
    help: 'Open files by those that the process may open; with workers, of the process with the largest share',
    registers: [],
    aggregator: 'max',
  });
  const open = new Gauge({
    name: OPEN,
    help: 'Number of open file descriptors.',
    registers: [],
    collect() {
      const count = openFiles(max);
      this.set(count);
      ratio.set(count / max);
    },
  });
  // In the order in which they are read.
  registry.registerMetric(open);
  registry.registerMetric(ratio);
}
