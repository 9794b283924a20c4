import type { Content } from './content.ts';

const escapes: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&apos;',
};

/** Formats the content as an XML document with one root element. */
export function toXml(root: string, content: Content): Buffer {
  return Buffer.from(`<?xml version="1.0" encoding="UTF-8"?>\n${element(root, content)}\n`, 'utf8');
}

/** Formats the content as JSON; a list with one member stays a list. */
export function toJson(root: string, content: Content): Buffer {
  return Buffer.from(`${JSON.stringify({ [root]: content })}\n`, 'utf8');
}

function element(name: string, content: Content | readonly Content[]): string {
  if (isList(content)) return content.map((item) => element(name, item)).join('');
  const inner =
    typeof content === 'string'
      ? content.replace(/[&<>"']/g, (character) => escapes[character] ?? '')
      : Object.entries(content)
          .map(([key, value]) => element(key, value))
          .join('');
  return `<${name}>${inner}</${name}>`;
}

function isList(content: Content | readonly Content[]): content is readonly Content[] {
  return Array.isArray(content);
}
