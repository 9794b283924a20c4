import { copyFile, mkdir, rm, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { asRoot } from '../../test/support/as-root.ts';

const SIZE = 64 * 2 ** 20;
/**
 * EXT4_IOC_SHUTDOWN with EXT4_GOING_FLAGS_NOLOGFLUSH, which the kernel's own tests use for this: the file system stops
 * at once, and writes neither its journal nor what is in the page cache. Perl is essential in Debian.
 */
const SHUT_DOWN =
  'my $flags = pack("I", 2); open(my $f, "<", $ARGV[0]) or die $!; ioctl($f, 0x8004587d, $flags) or die $!';

/** An ext4 file system in a file, for which the power can be cut: it then lacks all that was not synced. */
export class VolatileDisk {
  #image: string;
  /** Folder at which it is mounted. */
  readonly path: string;

  private constructor(image: string, path: string) {
    this.#image = image;
    this.path = path;
  }

  /** Makes it in a folder, which stays when it is closed. */
  static async create(folder: string): Promise<VolatileDisk> {
    const disk = new VolatileDisk(join(folder, 'disk.img'), join(folder, 'disk'));
    await mkdir(disk.path);
    await writeFile(disk.#image, '');
    await truncate(disk.#image, SIZE);
    await asRoot('mkfs.ext4', '-q', '-F', '-E', 'root_owner', disk.#image);
    await disk.#mount();
    return disk;
  }

  /** From now on every access fails. */
  async cutPower(): Promise<void> {
    await asRoot('perl', '-e', SHUT_DOWN, this.path);
  }

  /** The file system as a machine finds it that starts again. No process may have a file of it open. */
  async restorePower(): Promise<void> {
    await asRoot('umount', this.path);
    // Another process on this machine may have got a mount namespace of its own meanwhile, with this mount in it. The
    // kernel would then mount the image as it is in its memory: without power.
    const stopped = this.#image;
    this.#image = `${stopped}+`;
    await copyFile(stopped, this.#image);
    await rm(stopped);
    await this.#mount();
  }

  close(): Promise<string> {
    return asRoot('umount', this.path);
  }

  #mount(): Promise<string> {
    return asRoot('mount', '-o', 'loop', this.#image, this.path);
  }
}
