import { type ChildProcess, execFile } from 'node:child_process';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { readFile } from 'node:fs/promises';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { type Browser, chromium, type Page } from 'playwright-core';
import { builtOnce } from './built-once.ts';
import { repository } from './repository.ts';
import { needPackages } from './system-packages.ts';

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
  '--host-resolver-rules=MAP *.example 127.0.0.1',
];
const CHROMIUM = join(import.meta.dirname, 'chromium.sh');
const DOWNLOADS = join(repository, 'node_modules/.cache/downloads');

/** Resolves to the folder of the console's page as the package has it. */
export function builtConsole(): Promise<string> {
  const vite = join(repository, 'node_modules/vite/bin/vite.js');
  const config = join(repository, 'src/control/console/vite.config.ts');
  return builtOnce('console', ['src/control/**/*.*'], async (folder) => {
    await promisify(execFile)(process.execPath, [vite, 'build', '--config', config, '--outDir', folder]);
  });
}

let opened: Browser | undefined;

/**
 * Debian's Chromium, one for all test files of a process, which ends it. It is the one without a screen, whose pages
 * take a third of the time. Names under `.example` lead to 127.0.0.1.
 */
export async function openBrowser(): Promise<Browser> {
  needPackages('chromium-headless-shell');
  if (opened?.isConnected() !== true) opened = await launch();
  return opened;
}

async function launch(): Promise<Browser> {
  const started: ChildProcess[] = [];
  const onProcess = (message: unknown): void => {
    started.push((message as { process: ChildProcess }).process);
  };
  subscribe('child_process', onProcess);
  try {
    return await chromium.launch({
      executablePath: CHROMIUM,
      args: FLAGS,
      timeout: LIMIT_MS,
      artifactsDir: DOWNLOADS,
      // A signal ends the process at once, and the browser with it.
      handleSIGHUP: false,
      handleSIGINT: false,
      handleSIGTERM: false,
    });
  } finally {
    unsubscribe('child_process', onProcess);
    // It keeps no process from ending.
    for (const child of started.filter(({ spawnfile }) => spawnfile === CHROMIUM)) {
      child.unref();
      for (const stream of child.stdio) (stream as Socket | null)?.unref();
    }
  }
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
  if (!(await page.evaluate("'axe' in globalThis"))) {
    await page.evaluate(await readFile(join(repository, 'node_modules/axe-core/axe.min.js'), 'utf8'));
  }
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
