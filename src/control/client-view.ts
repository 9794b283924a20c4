/*
 * The JSON of `/api/clients/NAME` and `/api/policy/explain`. The page in `console/` shares these types, so this file
 * imports nothing. No part holds a secret, or the hash of one.
 */

/** A client: what it may do, what it uses of its limits, what it was refused. */
export interface ClientDetailView {
  readonly id: string;
  /** Conditions that hold for its requests, in words. */
  readonly identifiedBy: readonly string[];
  readonly rules: readonly RuleView[];
  /** Until then, in Unix milliseconds, the rules are only observed; null: they refuse. */
  readonly observedUntil: number | null;
  /** null: none are configured. */
  readonly limits: LimitUseView | null;
  /** Since the start, the latest first. */
  readonly refusals: readonly RefusalView[];
  /** In the order of the configuration. */
  readonly keys: readonly KeyView[];
}

/** An API key of a client, by its note or the first digits of its hash. */
export interface KeyView {
  readonly name: string;
  /** Unix milliseconds; null: it has no end. */
  readonly expires: number | null;
  /** Since the start, in Unix milliseconds; null: it was not seen. */
  readonly lastSeen: number | null;
}

/** A rule of a client. Where a list is null, everything is allowed. */
export interface RuleView {
  /** Path in the configuration. */
  readonly path: string;
  readonly deployment: string;
  readonly sites: readonly string[] | null;
  readonly operations: readonly OperationView[] | null;
  readonly methods: readonly string[] | null;
  readonly parameters: readonly ParameterLimitView[];
  /** null: that of the site or of the deployment. */
  readonly credential: string | null;
  /** Unix milliseconds; null: it has no end. */
  readonly ends: number | null;
}

/** An operation of a rule. */
export interface OperationView {
  readonly name: string;
  /** Empty if the deployment lists no operation of this name. */
  readonly method: string;
  readonly path: string;
}

export interface ParameterLimitView {
  readonly name: string;
  /** The most items of a list; null: any number. */
  readonly max: number | null;
  /** Allowed values, the first ones of a long list; null: any. */
  readonly values: readonly string[] | null;
  /** Number of allowed values beyond those. */
  readonly moreValues: number;
}

/** Limits and their use at this moment, of all processes together as far as this one knows. null: not limited. */
export interface LimitUseView {
  readonly rate: { readonly perSecond: number; readonly burst: number; readonly left: number } | null;
  readonly concurrent: { readonly most: number; readonly inFlight: number } | null;
  readonly daily: { readonly most: number; readonly used: number } | null;
}

/** Refusals of one code. */
export interface RefusalView {
  readonly code: string;
  /** True: by rules that are only observed, so the requests went on; what became of them is not known here. */
  readonly isServed: boolean;
  readonly title: string;
  readonly count: number;
  /** The last one: Unix milliseconds, the deployment (empty: none), the reason, the request. */
  readonly lastAt: number;
  readonly deployment: string;
  readonly detail: string;
  readonly requestId: string;
}

/** Limits and refusals of a client in one data plane. */
export interface ClientUse {
  readonly limits: LimitUseView | null;
  readonly refusals: readonly RefusalView[];
  /** The API keys that were seen, in Unix milliseconds. */
  readonly keys: readonly { readonly name: string; readonly lastSeen: number }[];
}

/** The outcome of a request with its reason. Absent parts are empty texts. */
export type ExplanationView = GrantedView | RefusedView;

export interface GrantedView {
  readonly allowed: true;
  readonly client: string;
  /** The conditions by which the gateway takes a request for one of this client; all hold. */
  readonly identifiedBy: readonly string[];
  readonly deployment: string;
  /** Path of the rule in the configuration, or of the mode in which the rules are only observed. */
  readonly rule: string;
  /** How the rules would refuse the request, which are only observed; absent: they allow it. */
  readonly wouldRefuse?: ObservedRefusalView;
  /** When the rule ends; empty if it has no end. */
  readonly ends: string;
  /** A line for each rule of the client for the deployment that has ended. */
  readonly endedRules: readonly string[];
  readonly operation: string;
  readonly site: string;
  readonly credential: string;
  /** Path of the part of the configuration that names the credential. */
  readonly credentialBy: string;
  /** Method and URL of the upstream request, byte for byte. */
  readonly sends: string;
  /** True if the gateway adds the site. */
  readonly siteAdded: boolean;
  /** Names of header fields that a rule keeps from the upstream. */
  readonly drops: readonly string[];
  /** The checked parameters, decoded. */
  readonly parameters: Readonly<Record<string, string>>;
  /** A sentence for each limit that the request counts against. */
  readonly limits: readonly string[];
}

/** `rule`: path of the part of the configuration that decides; empty: the request itself is wrong. */
export interface RefusedView extends Omit<ObservedRefusalView, 'until'> {
  readonly allowed: false;
  readonly client: string;
  readonly identifiedBy: readonly string[];
  readonly deployment: string;
  readonly endedRules: readonly string[];
}

/** How the rules of a client would refuse a request, which are only observed. */
export interface ObservedRefusalView {
  /** Path of the rules in the configuration. */
  readonly rule: string;
  /** The time from which they refuse: a date or RFC 3339, in UTC. */
  readonly until: string;
  readonly status: number;
  readonly code: string;
  readonly detail: string;
}

/** The configuration in use. */
export interface ConfigurationView {
  /** With defaults and included files, without secrets. */
  readonly yaml: string;
}
