import { stateOf } from '../base/file-watch.ts';
import { findParts } from '../config/include.ts';
import { CredentialVersions } from '../credentials/credentials.ts';
import type { ProcessContext } from '../credentials/sources.ts';
import { type AppSetup, readSetup, readSetupInBackground } from './setup.ts';

/** The configuration file of a gateway, with those that it includes, which are read at the start and at each reload. */
export class SetupSource {
  readonly file: string;
  readonly context: ProcessContext;
  /** An unchanged credential keeps its version from one reading to the next. */
  readonly versions = new CredentialVersions();
  /** State of the files before they were read last. */
  #state = '';
  #include: readonly string[] = [];

  constructor(file: string, context: ProcessContext) {
    this.file = file;
    this.context = context;
  }

  /**
   * Reads the setup of a gateway that starts.
   * @throws ConfigError with every issue
   */
  async readAtStart(): Promise<AppSetup> {
    return this.#known(await readSetup(this.file, this.context, this.versions));
  }

  /**
   * Reads the setup of a gateway that serves meanwhile.
   * @throws ConfigError with every issue
   */
  async readAgain(): Promise<AppSetup> {
    return this.#known(await readSetupInBackground(this.file, this.context, this.versions));
  }

  /** Finds the files of the configuration that was read last. */
  readonly files = async (): Promise<readonly string[]> => {
    const { files } = await findParts(this.file, this.#include);
    return [this.file, ...files];
  };

  /** Resolves to false if no file was written, added or removed since they were read last. */
  async isChanged(): Promise<boolean> {
    return (await stateOf(await this.files())) !== this.#state;
  }

  #known(setup: AppSetup): AppSetup {
    this.#state = setup.fileState;
    this.#include = setup.config.include ?? [];
    return setup;
  }
}
