import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import express, { type RequestHandler, type Response } from 'express';
import { ignoreSystemError } from '../base/expected-errors.ts';

/** Placeholder for the message in the login form. */
const MESSAGE = '<!--message-->';
const NOT_BUILT = 'The console is not built. In a checkout: npm run build:console, then reload this page.\n';

/** The built pages of the console. */
export class Pages {
  readonly #folder: string;
  /** Scripts and styles. They hold no data of this gateway, and their names change with their content. */
  readonly assets: RequestHandler;

  /** @param folder output folder of the build */
  constructor(folder: string) {
    this.#folder = folder;
    this.assets = express.static(join(folder, 'assets'), { immutable: true, maxAge: '1y', index: false });
  }

  sendConsole(res: Response): Promise<void> {
    return this.#send(res, 200, 'index.html', '');
  }

  /** `message` is inserted as HTML: only fixed text without markup may be passed. */
  sendLogin(res: Response, status: number, message: string): Promise<void> {
    return this.#send(res, status, 'login.html', message);
  }

  async #send(res: Response, status: number, name: string, message: string): Promise<void> {
    res.set('cache-control', 'no-store');
    const page = await readFile(join(this.#folder, name), 'utf8').catch(ignoreSystemError);
    if (page === undefined) res.status(503).type('text/plain').send(NOT_BUILT);
    else res.status(status).type('html').send(page.replace(MESSAGE, message));
  }
}
