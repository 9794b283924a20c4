/** Items of several sources, each in order of time, in order of time. Takes one of each source ahead. */
export async function* inOrderOfTime<T>(
  sources: readonly AsyncGenerator<T, void>[],
  timeOf: (item: T) => string,
): AsyncGenerator<T, void> {
  try {
    const heads = await Promise.all(sources.map(async (source) => ({ source, next: await source.next() })));
    for (;;) {
      let first: (typeof heads)[number] | undefined;
      let earliest = '';
      for (const head of heads) {
        if (head.next.done === true) continue;
        const time = timeOf(head.next.value);
        if (first !== undefined && time >= earliest) continue;
        first = head;
        earliest = time;
      }
      if (first === undefined || first.next.done === true) return;
      yield first.next.value;
      first.next = await first.source.next();
    }
  } finally {
    // Whoever takes no more leaves files open otherwise.
    for (const source of sources) await source.return();
  }
}
