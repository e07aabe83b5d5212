/** What viewers cost the server: many clients poll and load as open pages of the cluster do, while the state changes each second. */

import { Agent, request } from 'node:http';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { runnerImport } from 'vite';

/** The rules of the page itself. */
const { module: pace } = await runnerImport(join(import.meta.dirname, '../src/pace.ts'), { configFile: false, logLevel: 'error' });

const PAGE = 1000;
/** Time in seconds in which the viewers come. Each loads all nodes at once. */
const ARRIVAL = 4;

/** Makes a call on connections of one viewer: a browser keeps them open, too. */
function call(agent, origin, method, message) {
  const body = JSON.stringify(message);
  const headers = { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body), 'Connect-Protocol-Version': '1' };
  return new Promise((resolve, reject) => {
    const sent = request(`${origin}/pumice.v1.${method}`, { method: 'POST', agent, headers }, (response) => {
      const parts = [];
      response.on('data', (part) => parts.push(part));
      response.on('end', () => {
        const text = Buffer.concat(parts).toString();
        if (response.statusCode === 200) resolve({ text, viewers: Number(response.headers['pumice-viewers'] ?? 1) });
        else reject(new Error(`${method}: ${response.statusCode} ${text}`));
      });
    });
    sent.on('error', reject);
    sent.end(body);
  });
}

/** One open page, until `end` says so. Returns the number of its loads of all nodes. */
async function view(origin, end) {
  const agent = new Agent({ keepAlive: true, maxSockets: 6 });
  let loads = 0;
  let failures = 0;
  let loaded = '';
  let notBefore = 0;
  await sleep(Math.random() * ARRIVAL * 1000);
  while (!end.aborted) {
    const { text, viewers } = await call(agent, origin, 'StateService/GetServerInfo', {}).catch(() => ({ text: '{}', viewers: 1 }));
    const revision = JSON.parse(text).revision?.number ?? '';
    if (revision && revision !== loaded && performance.now() >= notBefore) {
      const start = performance.now();
      try {
        // One process reads for all viewers, so it does not parse the nodes.
        for (let token = ''; token !== undefined; ) {
          const page = await call(agent, origin, 'StateService/ListNodes', { page: { size: PAGE, token } });
          token = /"nextPageToken":"([^"]+)"/.exec(page.text)?.[1];
        }
        [loaded, loads, failures] = [revision, loads + 1, 0];
      } catch {
        // A server with too much work rejects the load.
        failures += 1;
      }
      const end = performance.now();
      notBefore = end + (failures > 0 ? pace.retryAfter(failures) : pace.restAfter(end - start, viewers));
    }
    await sleep(pace.POLL);
  }
  agent.destroy();
  return loads;
}

/** Changes one node each second, until `end` says so. */
async function change(origin, end) {
  const agent = new Agent({ keepAlive: true });
  for (let sequence = 1; !end.aborted; sequence += 1) {
    const node = { name: 'viewed', allocatable: { items: { cpu: String(1 + (sequence % 2)) } } };
    const batch = { source: 'viewers', sourceEpoch: '1', sequence: String(sequence), put: { nodes: [node] }, kind: sequence === 1 ? 'BATCH_KIND_FULL_SYNC_LAST' : 'BATCH_KIND_DELTA', ...(sequence === 1 ? { part: 1 } : {}) };
    await call(agent, origin, 'StateService/Apply', { batch });
    await sleep(1000);
  }
  agent.destroy();
}

/** Percent of a core that the server takes for this number of viewers, without its cost of the changes, and their loads of all nodes. `settle`: seconds from the first viewer to the measure. */
export async function costOfViewers(server, viewers, seconds, settle = 3 * ARRIVAL) {
  const end = new AbortController();
  const changes = change(server.origin, end.signal);
  await sleep(2000);
  const measure = async () => {
    const before = server.processorTime();
    await sleep(seconds * 1000);
    return (100 * (server.processorTime() - before)) / seconds;
  };
  const idle = await measure();
  const pages = Array.from({ length: viewers }, () => view(server.origin, end.signal));
  await sleep(settle * 1000);
  const busy = await measure();
  end.abort();
  await changes;
  const loads = (await Promise.all(pages)).reduce((sum, own) => sum + own, 0);
  return { percent: busy - idle, idle, loads };
}
