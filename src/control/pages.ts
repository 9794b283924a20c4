import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import express, { type RequestHandler, type Response } from 'express';
import { ignoreSystemError } from '../base/expected-errors.ts';
import { escapeMarkup } from '../base/printable.ts';

/** Placeholder for the message in the login page. */
const MESSAGE = '<!--message-->';
const NOT_BUILT = 'The console is not built. In a checkout: npm run build:console, then reload this page.\n';

/** The ways to sign in that the login page has. */
interface SignInWays {
  readonly token: boolean;
  readonly oidc: boolean;
}

/** The built pages of the console. */
export class Pages {
  readonly #folder: string;
  readonly #ways: SignInWays;
  /** Scripts and styles. They hold no data of this gateway, and their names change with their content. */
  readonly assets: RequestHandler;

  /** @param folder output folder of the build */
  constructor(folder: string, ways: SignInWays) {
    this.#folder = folder;
    this.#ways = ways;
    this.assets = express.static(join(folder, 'assets'), { immutable: true, maxAge: '1y', index: false });
  }

  sendConsole(res: Response): Promise<void> {
    return this.#send(res, 200, 'index.html', (page) => page);
  }

  /** `message`: what went wrong, with its stable code, if it has one. */
  sendLogin(res: Response, status: number, message = '', code?: string): Promise<void> {
    const shown = escapeMarkup(code === undefined ? message : `${message} (${code})`);
    return this.#send(res, status, 'login.html', (page) => {
      const offered = Object.entries(this.#ways).reduce(
        (text, [way, isOffered]) => (isOffered ? text : without(text, way)),
        page,
      );
      return offered.replace(MESSAGE, () => shown);
    });
  }

  /** Sends a browser on by a page, which is a navigation of this site's own. */
  sendForward(res: Response, title: string, url: string): void {
    const target = escapeMarkup(url);
    res
      .status(200)
      .type('html')
      .send(
        `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>${title} · digest-gateway</title>` +
          `<meta http-equiv="refresh" content="0;url=${target}"></head>` +
          `<body><main><h1>${title}</h1><p><a href="${target}">Continue</a></p></main></body></html>\n`,
      );
  }

  async #send(res: Response, status: number, name: string, edit: (page: string) => string): Promise<void> {
    const page = await readFile(join(this.#folder, name), 'utf8').catch(ignoreSystemError);
    if (page === undefined) res.status(503).type('text/plain').send(NOT_BUILT);
    else res.status(status).type('html').send(edit(page));
  }
}

/** Removes the part of a page between the marks `<!--way-->` and `<!--/way-->`. */
function without(page: string, way: string): string {
  const [start, end] = [page.indexOf(`<!--${way}-->`), page.indexOf(`<!--/${way}-->`)];
  return start < 0 || end < start ? page : page.slice(0, start) + page.slice(end);
}
