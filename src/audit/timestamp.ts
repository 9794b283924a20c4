import { createHash, hash, randomBytes } from 'node:crypto';
import { messageOf } from '../base/error-code.ts';
import { certificatesIn } from '../base/guarded-file.ts';

/*
 * Time stamps of signed heads (RFC 3161). The library for CMS is loaded with the first time stamp, since few
 * configurations need it.
 */

type Pki = typeof import('pkijs');
type Certificate = InstanceType<Pki['Certificate']>;
type SignedData = InstanceType<Pki['SignedData']>;
type TSTInfo = InstanceType<Pki['TSTInfo']>;
type Attribute = InstanceType<Pki['Attribute']>;
type BaseBlock = import('asn1js').BaseBlock;

/** A token does not name the certificate that signed it: another one with the same key could take its place. */
export class SigningCertificateError extends Error {
  override readonly name = 'SigningCertificateError';
}

const SHA256 = '2.16.840.1.101.3.4.2.1';
const SIGNED_DATA = '1.2.840.113549.1.7.2';
const TST_INFO = '1.2.840.113549.1.9.16.1.4';
const EXTENDED_KEY_USAGE = '2.5.29.37';
const BASIC_CONSTRAINTS = '2.5.29.19';
/** The extensions that can be critical in a certificate, as for OpenSSL: those that are checked, or about revocation. */
const KNOWN_CRITICAL: ReadonlySet<string> = new Set([
  BASIC_CONSTRAINTS,
  EXTENDED_KEY_USAGE,
  '2.5.29.15', // keyUsage
  '2.5.29.17', // subjectAltName
  '2.5.29.30', // nameConstraints
  '2.5.29.31', // cRLDistributionPoints
  '2.5.29.32', // certificatePolicies
  '2.5.29.33', // policyMappings
  '2.5.29.36', // policyConstraints
  '2.5.29.54', // inhibitAnyPolicy
]);
const TIME_STAMPING = '1.3.6.1.5.5.7.3.8';
/** The attributes that name the certificate of the signature, by SHA-1 (RFC 3161) and by another hash (RFC 5816). */
const SIGNING_CERTIFICATE = '1.2.840.113549.1.9.16.2.12';
const SIGNING_CERTIFICATE_V2 = '1.2.840.113549.1.9.16.2.47';
/** Names of node:crypto for the hashes that name a certificate. */
const HASHES: Readonly<Record<string, string>> = {
  [SHA256]: 'sha256',
  '2.16.840.1.101.3.4.2.2': 'sha384',
  '2.16.840.1.101.3.4.2.3': 'sha512',
  '1.3.14.3.2.26': 'sha1',
};
/** The code of pkijs for a certificate that leads to no trusted one. */
const CHAIN_INVALID = 5;
/** PKIFailureInfo of RFC 3161, section 2.4.2, by the bit. */
const FAILURES: Readonly<Record<number, string>> = {
  0: 'badAlg',
  2: 'badRequest',
  5: 'badDataFormat',
  14: 'timeNotAvailable',
  15: 'unacceptedPolicy',
  16: 'unacceptedExtension',
  17: 'addInfoNotAvailable',
  25: 'systemFailure',
};

/** A request for a time stamp. */
interface TimestampRequest {
  /** TimeStampReq in DER. */
  readonly body: Buffer;
  /** The text that is stamped. */
  readonly text: string;
  readonly nonce: bigint;
}

/** A time stamp whose signature is right. */
interface Timestamp {
  /** In Unix milliseconds. */
  readonly time: number;
  /** The object identifier of the authority's policy. */
  readonly policy: string;
  readonly nonce: bigint | undefined;
}

/** The conditions that the response to a request has to meet. */
interface TimestampExpectation {
  /** PEM: the certificates that time-stamping authorities lead to. */
  readonly authorities: string;
  /** An object identifier; undefined: any policy. */
  readonly policy: string | undefined;
}

/** Makes a request for a time stamp of a text, with the certificates of the authority. */
export async function timestampRequest(text: string, policy: string | undefined): Promise<TimestampRequest> {
  const { AlgorithmIdentifier, MessageImprint, TimeStampReq } = await import('pkijs');
  const { Integer, OctetString } = await import('asn1js');
  const nonce = BigInt(`0x${randomBytes(8).toString('hex')}`);
  const request = new TimeStampReq({
    version: 1,
    messageImprint: new MessageImprint({
      hashAlgorithm: new AlgorithmIdentifier({ algorithmId: SHA256 }),
      hashedMessage: new OctetString({ valueHex: imprintOf(text) }),
    }),
    ...(policy !== undefined && { reqPolicy: policy }),
    nonce: Integer.fromBigInt(nonce),
    certReq: true,
  });
  return { body: Buffer.from(request.toSchema().toBER()), text, nonce };
}

/**
 * Checks the response of an authority, and returns its token in DER.
 * @throws Error with the reason, which quotes nothing of the response
 */
export async function tokenIn(
  response: Buffer,
  request: TimestampRequest,
  { authorities, policy }: TimestampExpectation,
): Promise<Buffer> {
  const { TimeStampResp } = await import('pkijs');
  const { status, timeStampToken } = parse('its response is not a time stamp response', () =>
    TimeStampResp.fromBER(response),
  );
  // 1 is granted with modifications, of which the checks below accept none that matters.
  if (status.status !== 0 && status.status !== 1) {
    throw new Error(`it refused to make a time stamp (status ${status.status}${failureOf(status)})`);
  }
  if (timeStampToken === undefined) throw new Error('its response has no token');
  const token = Buffer.from(timeStampToken.toSchema().toBER());
  const stamp = await checkToken(token, request.text, authorities);
  if (stamp.nonce !== request.nonce)
    throw new Error('its time stamp is of another request: the nonce differs');
  if (policy !== undefined && stamp.policy !== policy) {
    throw new Error('its time stamp has another policy than audit.timestamps.policy');
  }
  return token;
}

/**
 * Checks that a token is a time stamp of a text, by a certificate for this purpose that led to one of the authorities
 * (PEM) at that time, and that the token names this certificate. Revocation is not checked.
 * @throws SigningCertificateError if the token does not name the certificate
 * @throws Error with the reason
 */
export async function checkToken(token: Buffer, text: string, authorities: string): Promise<Timestamp> {
  const { Certificate, ContentInfo, SignedData, TSTInfo } = await import('pkijs');
  const { signed, info } = parse('the time stamp has not the form of one', () => {
    const { contentType, content } = ContentInfo.fromBER(token);
    if (contentType !== SIGNED_DATA) throw new RangeError('no signed data');
    const signed = new SignedData({ schema: content });
    const { eContentType, eContent } = signed.encapContentInfo;
    if (eContentType !== TST_INFO || eContent === undefined || signed.signerInfos.length !== 1) {
      throw new RangeError('no time stamp with one signature');
    }
    return { signed, info: TSTInfo.fromBER(eContent.getValue()) };
  });
  if (!isOf(info, text)) throw new Error('the time stamp is of another text');
  const trusted = (certificatesIn(authorities) ?? []).map(({ raw }) => Certificate.fromBER(raw));
  const signer = await signerOf(signed, text, trusted);
  if (!isForTimestamps(signer)) {
    throw new Error(
      'the certificate of the time stamp is not for time stamps alone (extended key usage timeStamping, critical)',
    );
  }
  await checkSigningCertificate(signed, signer);
  return { time: info.genTime.getTime(), policy: info.policy, nonce: info.nonce?.toBigInt() };
}

/** The certificate that signed, after its signature and its way to a trusted certificate are checked. */
async function signerOf(signed: SignedData, text: string, trusted: Certificate[]): Promise<Certificate> {
  const untrusted = 'the certificate of the time stamp leads to none of the given authorities';
  // Lists of revoked certificates in the token are no evidence: its maker chose them.
  signed.crls = [];
  signed.ocsps = [];
  const result = await signed
    .verify({
      signer: 0,
      data: Uint8Array.from(Buffer.from(text)).buffer,
      trustedCerts: trusted,
      checkChain: true,
      extendedMode: true,
    })
    .catch((error: unknown) => {
      const isChain = (error as { code?: unknown }).code === CHAIN_INVALID;
      throw new Error(isChain ? untrusted : `the signature of the time stamp is wrong: ${messageOf(error)}`);
    });
  const { signatureVerified, signerCertificate, certificatePath } = result;
  if (signatureVerified !== true || !signerCertificate) {
    throw new Error('the signature of the time stamp is wrong');
  }
  // The library leaves out duplicates, and so could check the way of another certificate.
  if (certificatePath[0] !== signerCertificate) throw new Error(untrusted);
  checkPath(certificatePath);
  return signerCertificate;
}

/**
 * Checks what the library does not look at (RFC 5280, sections 6.1.4 and 6.1.5): how many authorities may be below one, and
 * that no critical extension is unknown. `path`: from the certificate of the signature up.
 */
function checkPath(path: readonly Certificate[]): void {
  let authorities = 0;
  for (const [at, { extensions = [], subject, issuer }] of path.entries()) {
    if (extensions.some(({ critical, extnID }) => critical && !KNOWN_CRITICAL.has(extnID))) {
      throw new Error('a certificate of the time stamp has a critical extension that is not known');
    }
    const constraints = extensions.find(({ extnID }) => extnID === BASIC_CONSTRAINTS)?.parsedValue;
    const { pathLenConstraint: limit } = (constraints ?? {}) as { pathLenConstraint?: unknown };
    if (typeof limit === 'number' && authorities > limit) {
      throw new Error('an authority of the time stamp may not have so many authorities below it (pathlen)');
    }
    if (at > 0 && !subject.isEqual(issuer)) authorities += 1;
  }
}

/**
 * Checks the signed attributes that name the certificate: there is one at least, and all name this one first.
 * @throws SigningCertificateError
 */
async function checkSigningCertificate({ signerInfos }: SignedData, signer: Certificate): Promise<void> {
  const attributes = signerInfos[0]?.signedAttrs?.attributes ?? [];
  const naming = attributes.filter(
    ({ type }) => type === SIGNING_CERTIFICATE || type === SIGNING_CERTIFICATE_V2,
  );
  if (naming.length === 0) {
    throw new SigningCertificateError('the time stamp does not name the certificate that signed it');
  }
  const isNamed = await certificateComparison();
  if (!naming.every((each) => isNamed(signer, each))) {
    throw new SigningCertificateError('the time stamp names another certificate than the one that signed it');
  }
}

/**
 * Returns what compares a certificate with the first one that an attribute names: ESSCertID or ESSCertIDv2 of RFC 5035.
 * Issuer and serial number add nothing to the hash.
 */
async function certificateComparison() {
  const { AlgorithmIdentifier } = await import('pkijs');
  const { OctetString, Sequence } = await import('asn1js');
  const partsOf = (block: unknown): readonly BaseBlock[] =>
    block instanceof Sequence ? (block.valueBlock.value as BaseBlock[]) : [];
  return (certificate: Certificate, { type, values }: Attribute): boolean => {
    const [first] = values.length === 1 ? partsOf(partsOf(values[0])[0]) : [];
    const parts = partsOf(first);
    const written = parts[0] instanceof Sequence ? new AlgorithmIdentifier({ schema: parts[0] }) : undefined;
    const digest = parts[written === undefined ? 0 : 1];
    const implied = type === SIGNING_CERTIFICATE ? 'sha1' : 'sha256';
    const algorithm = written === undefined ? implied : HASHES[written.algorithmId];
    if (algorithm === undefined || !(digest instanceof OctetString)) return false;
    const bytes = Buffer.from(certificate.toSchema().toBER());
    return hash(algorithm, bytes, 'buffer').equals(Buffer.from(digest.getValue()));
  };
}

function isOf({ messageImprint }: TSTInfo, text: string): boolean {
  const { hashAlgorithm, hashedMessage } = messageImprint;
  const digest = Buffer.from(hashedMessage.getValue());
  return hashAlgorithm.algorithmId === SHA256 && digest.equals(imprintOf(text));
}

/** RFC 3161, section 2.3: this usage alone, in a critical extension. */
function isForTimestamps({ extensions = [] }: Certificate): boolean {
  const usage = extensions.find(({ extnID }) => extnID === EXTENDED_KEY_USAGE);
  const { keyPurposes } = (usage?.parsedValue ?? {}) as { keyPurposes?: readonly string[] };
  return usage?.critical === true && keyPurposes?.length === 1 && keyPurposes[0] === TIME_STAMPING;
}

function failureOf({
  failInfo,
}: {
  failInfo?: { getValue?: unknown; valueBlock: { valueHexView: Uint8Array } };
}) {
  const bytes = failInfo?.valueBlock.valueHexView ?? new Uint8Array();
  const bits = Object.keys(FAILURES).map(Number);
  const set = bits.find((bit) => ((bytes[bit >> 3] ?? 0) & (0x80 >> (bit & 7))) !== 0);
  return set === undefined ? '' : `, ${FAILURES[set]}`;
}

function imprintOf(text: string): Buffer<ArrayBuffer> {
  return createHash('sha256').update(text).digest() as Buffer<ArrayBuffer>;
}

function parse<T>(reason: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    throw new Error(reason, { cause: error });
  }
}
