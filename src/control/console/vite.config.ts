import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vite';

const here = (name: string): string => fileURLToPath(new URL(name, import.meta.url));

/** `npm run build:console`. The control plane serves what it makes. */
export default defineConfig({
  root: here('.'),
  base: '/',
  logLevel: 'warn',
  build: {
    outDir: here('../../../dist/console'),
    emptyOutDir: true,
    target: 'es2022',
    // Everything comes from files of its own, as the content security policy has it.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rolldownOptions: { input: [here('index.html'), here('login.html')] },
  },
});
