import { writeFileSync } from 'node:fs';
import { generatedPages } from './pages.ts';

for (const [name, text] of await generatedPages()) {
  writeFileSync(new URL(`../../${name}`, import.meta.url), text);
}
