// @modelcontextprotocol/sdk, the newest of the handshake revisions: --url URL, or --command JSON.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { argument, walk } from './walk.mjs';

const client = new Client({ name: 'casemate-test', version: '1' });
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
const seen = await walk(client, (params, options) => client.callTool(params, undefined, options), argument('--marker'));
seen.version = transport.protocolVersion ?? transport._protocolVersion ?? null;
if (url) await transport.terminateSession();
await client.close();
console.log(JSON.stringify(seen));
