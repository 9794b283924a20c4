import { afterEach, beforeAll, expect } from '@jest/globals';
import type { Browser, Page } from 'playwright-core';
import { accessibilityFaults, type Look, openBrowser, openPage, type WatchedPage } from './browser.ts';

/** A phone in the dark theme, and a wide window in the light one. */
export const LOOKS = [
  { width: 360, scheme: 'dark' },
  { width: 1400, scheme: 'light' },
] as const satisfies readonly Look[];

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

/** Checks that the page as it is now fits and is accessible, and what else holds, in every look. */
export async function checkLooks(page: Page, check?: (look: Look) => Promise<void>): Promise<void> {
  for (const look of LOOKS) {
    await setLook(page, look);
    expect([look, await accessibilityFaults(page)]).toEqual([look, []]);
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(look.width);
    expect(await crowdedNumbers(page)).toEqual([]);
    await check?.(look);
  }
}

/** Labels of the numbers in tables that run into the next one. */
function crowdedNumbers(page: Page): Promise<string[]> {
  return page.evaluate(`[...document.querySelectorAll('td.numeric')]
    .filter(({ scrollWidth, clientWidth }) => scrollWidth > clientWidth)
    .map(({ dataset }) => dataset.label)`);
}

export async function setLook(page: Page, { width, scheme }: Look): Promise<void> {
  await page.setViewportSize({ width, height: 900 });
  await page.emulateMedia({ colorScheme: scheme });
}
