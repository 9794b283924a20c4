/** One instruction, as `COPY --from=build /a ./b`. */
export interface Instruction {
  readonly name: string;
  /** `from`, `chown` and the like. */
  readonly flags: Readonly<Record<string, string>>;
  /** What follows the flags; the JSON form already read. */
  readonly words: readonly string[];
  readonly text: string;
}

/** What stands between one FROM and the next. */
export interface Stage {
  readonly name: string;
  readonly base: string;
  readonly instructions: readonly Instruction[];
}

/** Reads a Dockerfile without heredocs and escapes; ARGs before the first FROM are filled in where FROM names them. */
export function readDockerfile(text: string): Stage[] {
  const lines = text.replace(/^\s*#.*\n/gm, '').replace(/\\\n\s*/g, ' ');
  const stages: (Stage & { instructions: Instruction[] })[] = [];
  const values = new Map<string, string>();
  for (const instruction of lines.split('\n').filter(Boolean).map(readInstruction)) {
    const stage = stages.at(-1);
    if (instruction.name === 'FROM') {
      const [base = '', , name = ''] = instruction.words;
      stages.push({
        name,
        base: base.replace(/\$\{(\w+)\}/, (_, key) => values.get(key) ?? ''),
        instructions: [],
      });
    } else if (stage !== undefined) {
      stage.instructions.push(instruction);
    } else {
      const [key = '', value = ''] = instruction.text.split('=');
      values.set(key, value);
    }
  }
  return stages;
}

function readInstruction(line: string): Instruction {
  const [, name = '', rest = ''] = /^(\S+)\s+(.*)$/.exec(line) ?? [];
  const flags = Object.fromEntries(
    Array.from(rest.matchAll(/(?<=^|\s)--([a-z-]+)=(\S+)/g), ([, key = '', value = '']) => [key, value]),
  );
  const text = rest.replace(/(?<=^|\s)--[a-z-]+=\S+\s*/g, (flag) => (name === 'RUN' ? flag : ''));
  const words: string[] = text.startsWith('[') ? JSON.parse(text) : text.split(/\s+/);
  return { name, flags, words, text };
}
