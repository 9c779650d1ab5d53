// What every TypeScript client is made to do, whatever its release: the caller hands in `client` and
// how that release is asked. Prints one JSON object of what it saw.
import { createHash } from 'node:crypto';

const PROGRAM = `
import hashlib, time
data = bytes(range(256)) * 300
open("report.bin", "wb").write(data)
print("step one", flush=True)
print("digest", hashlib.sha256(data).hexdigest())
`;

export async function walk(client, call, marker) {
  const seen = {};
  seen.tools = (await client.listTools()).tools.map((tool) => tool.name);

  let progress = 0;
  const ran = await call({ name: 'execute_code', arguments: { code: PROGRAM, outputs: ['report.bin'] } },
    { onprogress: () => { progress += 1; } });
  seen.text = ran.content[0].text;
  seen.isError = ran.isError ?? false;
  seen.progress = progress;

  const link = ran.content.find((part) => part.type === 'resource_link');
  const read = await client.readResource({ uri: link.uri });
  const bytes = Buffer.from(read.contents[0].blob, 'base64');
  seen.digest = createHash('sha256').update(bytes).digest('hex');

  // Cancelled when its first progress says that it runs.
  const stop = new AbortController();
  const program = `import subprocess\nsubprocess.run(["sleep", "${marker}"])`;
  try {
    await call({ name: 'execute_code', arguments: { code: program } },
      { signal: stop.signal, onprogress: (p) => { if (/running/.test(p.message ?? '')) stop.abort('enough'); } });
    seen.cancelled = 'it returned';
  } catch (error) {
    seen.cancelled = 'rejected';
  }

  const refused = await call({ name: 'execute_code', arguments: { code: 'print(1)', scope: 'mine' } }, {});
  seen.refused = refused.isError === true;
  seen.refusal = refused.content[0].text;
  return seen;
}

export function argument(name) {
  const at = process.argv.indexOf(name);
  return at < 0 ? undefined : process.argv[at + 1];
}
