/** The address of the trace of a request by the template of `control.traceUrl`; undefined: it was not traced. */
export function traceUrlOf(
  template: string,
  { traceId, requestId, time }: { traceId?: string; requestId: string; time: string },
): string | undefined {
  if (traceId === undefined) return undefined;
  const values: Readonly<Record<string, string>> = { traceId, requestId, time };
  return template.replace(/\{(traceId|requestId|time)\}/g, (_placeholder, name: string) =>
    encodeURIComponent(values[name] ?? ''),
  );
}
