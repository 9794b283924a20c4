import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { type Browser, chromium, type Page } from 'playwright-core';
import { needPackages } from './system-packages.ts';

const root = fileURLToPath(new URL('../..', import.meta.url));
/** Shorter than a test may take, so that the browser says what it waited for, in milliseconds. */
const LIMIT_MS = 90_000;
const FLAGS = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

/** The console's page as the package has it, in a folder of its own. */
export interface BuiltConsole {
  readonly folder: string;
  remove(): Promise<void>;
}

export async function buildConsole(): Promise<BuiltConsole> {
  const folder = await mkdtemp(join(tmpdir(), 'console-'));
  const vite = join(root, 'node_modules/vite/bin/vite.js');
  const config = join(root, 'src/control/console/vite.config.ts');
  await promisify(execFile)(process.execPath, [vite, 'build', '--config', config, '--outDir', folder]);
  return { folder, remove: () => rm(folder, { recursive: true }) };
}

/** Debian's Chromium, without a screen. `local`: names that lead to 127.0.0.1. */
export function openBrowser(local: readonly string[] = []): Promise<Browser> {
  needPackages('chromium');
  const rules = local.map((name) => `MAP ${name} 127.0.0.1`).join(',');
  const args = rules === '' ? FLAGS : [...FLAGS, `--host-resolver-rules=${rules}`];
  return chromium.launch({ executablePath: '/usr/bin/chromium', args, timeout: LIMIT_MS });
}

export interface WatchedPage {
  readonly page: Page;
  /** Errors of the page: of scripts, refused resources, the content security policy. */
  readonly pageErrors: string[];
}

export interface Look {
  readonly width: number;
  readonly scheme: 'light' | 'dark';
}

/** A page that notes every complaint of the browser. */
export async function openPage(browser: Browser, { width, scheme }: Look): Promise<WatchedPage> {
  const page = await browser.newPage({ viewport: { width, height: 900 }, colorScheme: scheme });
  page.setDefaultTimeout(LIMIT_MS);
  const pageErrors: string[] = [];
  page.on('console', (message) => {
    if (message.type() === 'error' || message.type() === 'warning') pageErrors.push(message.text());
  });
  page.on('pageerror', (error) => pageErrors.push(error.message));
  return { page, pageErrors };
}

/** Violations that axe-core finds in the page: rule and elements. */
export async function accessibilityFaults(page: Page): Promise<string[]> {
  // As the browser's tools do it: the page's own policy lets no foreign script in.
  await page.evaluate(await readFile(join(root, 'node_modules/axe-core/axe.min.js'), 'utf8'));
  return page.evaluate(async () => {
    const { axe } = globalThis as unknown as { axe: Axe };
    const { violations } = await axe.run();
    return violations.map(
      ({ id, nodes }) => `${id}: ${nodes.map(({ target }) => target.join(' ')).join(', ')}`,
    );
  });
}

interface Axe {
  run(): Promise<{ violations: { id: string; nodes: { target: string[] }[] }[] }>;
}
