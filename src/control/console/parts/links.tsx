/*
 * Every name and id on a page is a link to what is known about it.
 */

/** A link to a request's page. */
export function requestLink(id: string) {
  return id === '' ? null : <a href={`#/requests/${encodeURIComponent(id)}`}>{id}</a>;
}

/** A link to a client; without a name it is the unidentified ones. */
export function clientLink(name: string) {
  return <a href={`#/clients?client=${encodeURIComponent(name)}`}>{name === '' ? 'unknown' : name}</a>;
}

/** A link to a deployment's page. */
export function deploymentLink(name: string) {
  return name === '' ? null : <a href={`#/deployments/${encodeURIComponent(name)}`}>{name}</a>;
}
