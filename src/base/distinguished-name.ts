/** Short names of OpenSSL for the attributes of a name, by the arc of their object identifiers. */
const SHORT_NAMES: Readonly<Record<string, string>> = {
  '2.5.4.': `CN=3 SN=4 serialNumber=5 C=6 L=7 ST=8 street=9 O=10 OU=11 title=12 description=13 searchGuide=14
    businessCategory=15 postalAddress=16 postalCode=17 postOfficeBox=18 physicalDeliveryOfficeName=19
    telephoneNumber=20 telexNumber=21 teletexTerminalIdentifier=22 facsimileTelephoneNumber=23
    x121Address=24 internationaliSDNNumber=25 registeredAddress=26 destinationIndicator=27
    preferredDeliveryMethod=28 presentationAddress=29 supportedApplicationContext=30 member=31 owner=32
    roleOccupant=33 seeAlso=34 userPassword=35 userCertificate=36 cACertificate=37
    authorityRevocationList=38 certificateRevocationList=39 crossCertificatePair=40 name=41 GN=42
    initials=43 generationQualifier=44 x500UniqueIdentifier=45 dnQualifier=46 enhancedSearchGuide=47
    protocolInformation=48 distinguishedName=49 uniqueMember=50 houseIdentifier=51 supportedAlgorithms=52
    deltaRevocationList=53 dmdName=54 pseudonym=65 role=72 organizationIdentifier=97 c3=98 n3=99 dnsName=100`,
  '0.9.2342.19200300.100.1.': `UID=1 textEncodedORAddress=2 mail=3 info=4 favouriteDrink=5 roomNumber=6 photo=7
    userClass=8 host=9 manager=10 documentIdentifier=11 documentTitle=12 documentVersion=13 documentAuthor=14
    documentLocation=15 homeTelephoneNumber=20 secretary=21 otherMailbox=22 lastModifiedTime=23
    lastModifiedBy=24 DC=25 aRecord=26 pilotAttributeType27=27 mXRecord=28 nSRecord=29 sOARecord=30
    cNAMERecord=31 associatedDomain=37 associatedName=38 homePostalAddress=39 personalTitle=40
    mobileTelephoneNumber=41 pagerTelephoneNumber=42 friendlyCountryName=43 uid=44 organizationalStatus=45
    janetMailbox=46 mailPreferenceOption=47 buildingName=48 dSAQuality=49 singleLevelQuality=50
    subtreeMinimumQuality=51 subtreeMaximumQuality=52 personalSignature=53 dITRedirect=54 audio=55
    documentPublisher=56`,
  '1.2.840.113549.1.9.': 'emailAddress=1 unstructuredName=2 challengePassword=7 unstructuredAddress=8',
  '1.3.6.1.4.1.311.60.2.1.': 'jurisdictionL=1 jurisdictionST=2 jurisdictionC=3',
  '1.2.643.': 'OGRN=100.1 SNILS=100.3 OGRNIP=100.5 INN=3.131.1.1',
};

const OIDS: ReadonlyMap<string, string> = new Map(
  Object.entries(SHORT_NAMES).flatMap(([arc, names]) =>
    names.split(/\s+/).map((entry) => {
      const [name = '', last = ''] = entry.split('=');
      return [name, `${arc}${last}`] as const;
    }),
  ),
);

/** One character of a name as text, with its escape (RFC 4514 §2.4). */
const CHARACTER = /\\(?:[0-9a-f]{2}|.)|[^\\]/gisu;
/** A backslash that escapes nothing. */
const DANGLING = /(?<!\\)(?:\\\\)*\\$/;

/** The value begins with `=`, or with `#` if it is not a string and stands for its DER in hex. */
export type Attribute = readonly [oid: string, value: string];

/**
 * Parses a distinguished name as OpenSSL prints it, such as `CN=reporting, O=Example\, Inc.`: attributes have
 * the short names of OpenSSL or object identifiers, ` + ` joins the attributes of one RDN, and values are
 * escaped as in RFC 4514 §2.4.
 *
 * @returns the `keyOf` this name; undefined if the text is not a name, so that no certificate has it
 */
export function parseName(text: string): string | undefined {
  if (DANGLING.test(text)) return undefined;
  const rdns: Attribute[][] = [];
  for (const rdn of split(text, ',')) {
    const attributes = split(rdn, '+')
      .map(parseAttribute)
      .filter((attribute) => attribute !== undefined);
    if (attributes.length < split(rdn, '+').length) return undefined;
    rdns.push(attributes);
  }
  return keyOf(rdns);
}

/** Returns a text that is equal for names with the same attributes, in whatever order. */
export function keyOf(rdns: readonly (readonly Attribute[])[]): string {
  const texts = rdns.map((rdn) => JSON.stringify(rdn.map((attribute) => attribute.join('')).toSorted()));
  return JSON.stringify(texts.toSorted());
}

/** Splits at separators that are not escaped. */
function split(text: string, separator: string): string[] {
  const parts = [''];
  for (const [character] of text.matchAll(CHARACTER)) {
    if (character === separator) parts.push('');
    else parts[parts.length - 1] += character;
  }
  return parts;
}

function parseAttribute(text: string): Attribute | undefined {
  const [, type = '', value = ''] = /^[ \t\r\n]*([\w.]+)[ \t\r\n]*=[ \t\r\n]*(.*)$/su.exec(text) ?? [];
  const oid = /^\d/.test(type) ? type : OIDS.get(type);
  if (oid === undefined) return undefined;
  // OpenSSL escapes `#` at the start, unless the value is nothing else.
  const isDer = /^#(?:[0-9a-f]{2})+[ \t\r\n]*$/i.test(value);
  return [oid, isDer ? value.trimEnd().toLowerCase() : `=${unescaped(value)}`];
}

/** Resolves escapes, and removes spaces at the end that are not escaped: OpenSSL escapes those of ASCII only. */
function unescaped(value: string): string {
  const characters = Array.from(value.matchAll(CHARACTER), ([character]) => character);
  while (/^[ \t\r\n]$/.test(characters.at(-1) ?? '')) characters.pop();
  // Escaped bytes are UTF-8, so a character can have several of them.
  const bytes = characters.map((character) => {
    if (!character.startsWith('\\')) return Buffer.from(character);
    return Buffer.from(character.slice(1), character.length === 3 ? 'hex' : 'utf8');
  });
  return Buffer.concat(bytes).toString();
}
