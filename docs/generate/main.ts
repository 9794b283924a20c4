import { writeFileSync } from 'node:fs';
import { chartFiles } from './chart.ts';
import { generatedPages } from './pages.ts';

for (const [name, text] of await generatedPages()) {
  writeFileSync(new URL(`../../${name}`, import.meta.url), text);
}
for (const [name, text] of chartFiles()) {
  writeFileSync(new URL(`../../${name}`, import.meta.url), text);
}
