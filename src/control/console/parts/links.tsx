/*
 * Every name and id on a page is a link to what is known about it.
 */

/** A link to a request's page. `time`: of its record, so that the whole log need not be searched for it. */
export function requestLink(id: string, time?: string) {
  const at = time === undefined ? '' : `?at=${encodeURIComponent(time)}`;
  return id === '' ? null : <a href={`#/requests/${encodeURIComponent(id)}${at}`}>{id}</a>;
}

/** A link to the requests in the audit log that have this value. */
export function searchLink(criterion: string, value: string) {
  return value === '' ? null : <a href={`#/audit?${criterion}=${encodeURIComponent(value)}`}>{value}</a>;
}

/** A link to a client's page; unidentified clients have no page of their own. */
export function clientLink(name: string) {
  if (name === '') return <a href="#/clients">unknown</a>;
  return <a href={`#/clients/${encodeURIComponent(name)}`}>{name}</a>;
}

/** A link to a deployment's page. */
export function deploymentLink(name: string) {
  return name === '' ? null : <a href={`#/deployments/${encodeURIComponent(name)}`}>{name}</a>;
}
