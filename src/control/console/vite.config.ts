import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vite';

const here = (name: string): string => fileURLToPath(new URL(name, import.meta.url));

/** Settings of `npm run build:console`. The control plane serves the result. */
export default defineConfig({
  root: here('.'),
  base: '/',
  logLevel: 'warn',
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  build: {
    outDir: here('../../../dist/console'),
    emptyOutDir: true,
    target: 'es2022',
    // The content security policy allows no inline scripts and styles.
    assetsInlineLimit: 0,
    // Their licences ask for it.
    license: { fileName: 'licences.md' },
    modulePreload: { polyfill: false },
    rolldownOptions: { input: [here('index.html'), here('login.html')] },
  },
});
