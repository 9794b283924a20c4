/*
 * The JSON of `/api/map` and `/api/certificates`. The page in `console/` shares these types, so this file imports only
 * types of the other views.
 */
import type { State } from './view.ts';

/** The ways of requests from clients to deployments, in the order of the configuration. */
export interface MapView {
  readonly ways: readonly WayView[];
  /** Number of ways that were left out. */
  readonly more: number;
}

/** From a client by its rules to a deployment. */
export interface WayView {
  /** Empty for unidentified clients. */
  readonly client: string;
  /** Empty: the requests named none. */
  readonly deployment: string;
  /** Paths in the configuration; empty: no rule allows it, and requests were refused. */
  readonly rules: readonly string[];
  /** Of the last seconds. */
  readonly perSecond: number;
  /** Of these, refused with a 4xx error of the gateway. */
  readonly refusedPerSecond: number;
}

/** A certificate that the gateway shows, or that an upstream has shown. */
export interface CertificateUseView {
  /** Address of the listener, or name of the deployment. */
  readonly name: string;
  readonly kind: 'listener' | 'upstream' | 'authority';
  /** Distinguished names, one attribute a line; empty: not known. */
  readonly subject: string;
  readonly issuer: string;
  /** Unix milliseconds. */
  readonly expiresAt: number;
  /** `degraded`: it expires soon; `down`: it has expired. */
  readonly state: State;
}
