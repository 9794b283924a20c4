import { afterEach, beforeAll } from '@jest/globals';
import type { Browser } from 'playwright-core';
import { type Look, openBrowser, openPage, type WatchedPage } from './browser.ts';

/** Opens pages in contexts of their own, which are closed after each test, before what a later `afterEach` closes. */
export function usePages(): (look: Look) => Promise<WatchedPage> {
  let browser: Browser;
  beforeAll(async () => {
    browser = await openBrowser();
  });
  afterEach(async () => {
    await Promise.all(browser.contexts().map((context) => context.close()));
  });
  return (look) => openPage(browser, look);
}
