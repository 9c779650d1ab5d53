// @modelcontextprotocol/client, the newest of revision 2026-07-28: --url URL, or --command JSON; with
// --era legacy in the manner of the handshake revisions.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { argument, walk } from './walk.mjs';

const mode = argument('--era') === 'legacy' ? 'legacy' : { pin: '2026-07-28' };
const client = new Client({ name: 'casemate-test', version: '1' }, { versionNegotiation: { mode } });
const url = argument('--url');
let transport;
if (url) {
  const token = argument('--token');
  transport = new StreamableHTTPClientTransport(new URL(url),
    { requestInit: token ? { headers: { Authorization: `Bearer ${token}` } } : {} });
} else {
  const [command, ...args] = JSON.parse(argument('--command'));
  transport = new StdioClientTransport({ command, args, env: process.env });
}
await client.connect(transport);
const seen = await walk(client, (params, options) => client.callTool(params, options), argument('--marker'));
seen.version = client.getNegotiatedProtocolVersion?.() ?? null;
await client.close();
console.log(JSON.stringify(seen));
