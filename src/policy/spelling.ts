/*
 * How the most liberal server could read a path or a name. Nothing that is sent is ever rewritten by
 * this: it finds out whether something that a rule does not match could be read as something that it does.
 */

/** Percent-encoding of any depth at once: %2e, %252e, %25252e; and %u002e, which some servers know. */
const ENCODED = /%(?:25)*(?:u([\da-f]{4})|([\da-f]{2}))/gi;
/** UTF-8 of ASCII characters in two or three bytes (RFC 3629 §3 forbids it), as Latin-1. */
const OVERLONG = /[\xc0\xc1][\x80-\xbf]|\xe0[\x80\x81][\x80-\xbf]/g;
/** Encodings can be put together from encodings (%%32e); each pass undoes one such step. */
const PASSES = 3;

const ASCII = /^[\0-\x7f]*$/;
const PLAIN_NAME = /^[a-z\d_-]*$/;

/** A parameter's name as the most liberal server reads it: decoded, in lower case, without `[]`. */
export function foldName(name: string): string {
  if (PLAIN_NAME.test(name)) return name;
  const [folded = ''] = foldCase(decodeAll(name.replaceAll('+', ' '))).split(/[[\0]/, 1);
  return folded.trim().replace(/[. ]/g, '_');
}

/** A path as the most liberal server reads it: decoded, in lower case, without dot and empty segments. */
export function foldPath(path: string): string {
  const [text = ''] = foldCase(decodeAll(path)).split('\0', 1);
  const kept: string[] = [];
  for (const segment of text.replaceAll('\\', '/').split('/')) {
    const [name = ''] = segment.split(';', 1);
    // Windows drops dots and spaces at the end of a name, and takes name::$DATA for it.
    const plain = name.replace(/:+\$.*$/, '').replace(/[. +]+$/, '');
    if (name === '..') kept.pop();
    else if (plain !== '') kept.push(plain);
  }
  return `/${kept.join('/')}`;
}

/**
 * Without case and without what looks alike: fullwidth letters, the long s and the Kelvin sign have their ASCII twins
 * (NFKD and simple case mapping), accents and characters without width are dropped.
 */
function foldCase(text: string): string {
  if (ASCII.test(text)) return text.toLowerCase();
  const read = text.replace(/[\x80-\xff]+/g, (bytes) => {
    const decoded = Buffer.from(bytes, 'latin1').toString('utf8');
    return decoded.includes('\ufffd') ? bytes : decoded;
  });
  return read
    .normalize('NFKD')
    .replace(/[\p{M}\p{Default_Ignorable_Code_Point}]/gu, '')
    .toUpperCase()
    .toLowerCase();
}

function decodeAll(text: string): string {
  let decoded = text;
  for (let pass = 0; pass < PASSES && decoded.includes('%'); pass += 1) {
    decoded = decoded.replace(ENCODED, (_encoded, wide?: string, narrow?: string) =>
      String.fromCharCode(Number.parseInt(wide ?? narrow ?? '', 16)),
    );
  }
  return decoded.replace(OVERLONG, (bytes) => {
    const [middle = 0, last = 0] = Array.from(bytes.slice(-2), (byte) => byte.charCodeAt(0));
    return String.fromCharCode(((middle & 0x1f) << 6) | (last & 0x3f));
  });
}
