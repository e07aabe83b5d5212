/** Walks the console in a real browser: what it shows, how fast, whether a screen reader gets it, and what each role may do. */

import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import axe from 'axe-core';
import { chromium as driver } from 'playwright-core';
import { chromium } from './chromium.js';
import { largeCluster } from './cluster.js';
import { ROOT, program, startServer } from './server.js';
import { costOfViewers } from './viewers.js';

const PICTURES = resolve(ROOT, process.env.PICTURES || 'docs/pictures');
const NODES = 10_000;
/** A machine that does other work, or a slow server such as a debug build, needs longer: SLACK multiplies the bounds. */
const SLACK = Number(process.env.SLACK ?? 1);
/** Bounds in milliseconds. */
const BOUNDS = { 'first paint': 1000, 'paint of 10,000 nodes': 300, 'update of 10,000 nodes': 100, 'check of an edit': 200 };
/** Viewers whose cost is measured, and its bound in percent of a core. A slow server has fewer, because all of them come at once. */
const VIEWERS = Math.ceil(100 / SLACK);
const VIEWERS_PERCENT = 5;

let passed = 0;
const failures = [];

function check(what, holds, detail = '') {
  if (holds) passed += 1;
  else failures.push(`${what}${detail ? `: ${detail}` : ''}`);
  console.log(`${holds ? 'ok' : 'FAILED'}  ${what}${detail ? `  (${detail})` : ''}`);
}

function bound(what, milliseconds) {
  check(`${what} ≤ ${BOUNDS[what]} ms`, milliseconds <= BOUNDS[what] * SLACK, `${milliseconds.toFixed(1)} ms`);
}

/** A page that fails on foreign requests, on errors and on violations of the content security policy. */
async function openPage(browser, origin, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1200, height: 900 }, colorScheme: 'light', reducedMotion: 'reduce', ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(30_000);
  page.on('request', (request) => {
    if (!request.url().startsWith(`${origin}/`)) failures.push(`foreign request ${request.url()}`);
  });
  page.on('pageerror', (error) => failures.push(`error in the page: ${error.message}`));
  page.on('console', (message) => {
    // axe itself tries to add a style, which the content security policy forbids.
    if (message.type() === 'error' && !page.isRead && !message.text().includes('Failed to load resource')) failures.push(`console: ${message.text()}`);
  });
  return page;
}

async function show(page, origin, address) {
  await page.goto('about:blank');
  await page.goto(`${origin}/console/${address}`);
}

/** A view whose first load fails tries again by itself. */
async function walkFailure(page, origin) {
  await page.route('**/pumice.v1.StateService/ListQueues', (route) => route.abort(), { times: 1 });
  await show(page, origin, '#/queues');
  await page.getByRole('alert').getByText('The page tries again by itself').waitFor();
  await page.getByRole('row', { name: /^batch/ }).waitFor();
  check('a failed load: the view tries again', (await page.getByRole('alert').count()) === 0);
}

async function readable(page, view) {
  page.isRead = true;
  await page.evaluate(axe.source);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ['violations'] }));
  await page.waitForTimeout(100);
  page.isRead = false;
  const serious = violations.filter(({ impact }) => impact === 'serious' || impact === 'critical');
  const text = serious.map(({ id, nodes }) => `${id} at ${nodes.map((node) => node.target.join(' ')).slice(0, 3).join(', ')}`);
  check(`${view}: axe has no serious finding`, serious.length === 0, text.join('; '));
}

async function picture(page, name) {
  const height = await page.evaluate(() => Math.ceil(document.getElementById('view').getBoundingClientRect().bottom));
  await page.screenshot({ path: join(PICTURES, `${name}.png`), clip: { x: 0, y: 0, width: 1200, height: Math.min(900, height) } });
}

const DOCUMENT = '.editor .cm-content';

async function replaceDocument(page, text) {
  await page.locator(DOCUMENT).click();
  await page.keyboard.press('Control+A');
  // Text that Chromium itself inserts as a whole gets styles, which the content security policy forbids; typed text gets none.
  page.isRead = true;
  await page.keyboard.insertText(text);
  await page.waitForTimeout(50);
  page.isRead = false;
}

async function walkViews(browser, server, files) {
  const { origin } = server;
  const page = await openPage(browser, origin);
  await show(page, origin, '#/queues?resource=cpu');
  await page.getByRole('row', { name: /research/ }).first().waitFor();
  bound('first paint', await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0].startTime));
  const row = (name) => page.getByRole('row', { name: new RegExp(`^${name}`) }).innerText();
  check('queues: batch borrows 18 cores', (await row('batch')).includes('borrows 18 cores'), await row('batch'));
  check('queues: no mark of a limit without a limit', (await page.getByRole('row', { name: /^batch/ }).locator('line.limit').count()) === 0 && (await page.getByRole('row', { name: /^research/ }).locator('line.limit').count()) === 1);
  await readable(page, 'queues');
  await picture(page, 'queues');

  await show(page, origin, '#/waiting');
  await page.getByRole('link', { name: 'x/gang' }).waitFor();
  check('waiting: x/gang waits for quota', (await row('x/gang')).includes('quota'), await row('x/gang'));
  await readable(page, 'waiting');

  await show(page, origin, '#/waiting?job=x%2Fgang');
  const verdict = page.locator('.verdict');
  await verdict.waitFor();
  check('explain: the quota, the amounts', (await verdict.innerText()).includes('queue research has 6 of 8 cores of cpu left, and the gang of 10 tasks asks for 10 cores'), await verdict.innerText());
  const help = page.getByLabel('What would help');
  await help.getByText('The server has tried each change').waitFor();
  check('explain: what lets it start', (await help.innerText()).includes('minMember of at most 4') && (await help.innerText()).includes('spec.guarantee of at least 12 cores of cpu and add nodes with room for 6 of its tasks'), await help.innerText());
  check('explain: a policy without evictions', (await page.getByLabel('Why nodes reject it').innerText()).includes('cannot help'));
  const turn = await page.getByLabel('Turn').innerText();
  check('explain: its turn, counted as by the command', turn.includes('4th of 5; before it with waiting jobs: serving') && turn.includes('x/gang priority 10'), turn);
  check('explain: 4 of 10 find a node', (await page.getByLabel('Nodes for its tasks').innerText()).startsWith('4 of 10 waiting tasks find a node now'));
  check('explain: its command', await page.getByText('pumice explain job x/gang').isVisible());
  await readable(page, 'explain');
  await picture(page, 'waiting');

  await show(page, origin, '#/decisions');
  await page.getByRole('row', { name: /^Admit/ }).waitFor();
  await decideFor(origin, 8000);
  await readable(page, 'decisions');
  await picture(page, 'decisions');

  await walkFailure(page, origin);
  await walkPolicy(page, server, files);
  await page.context().close();

  const dark = await openPage(browser, origin, { colorScheme: 'dark' });
  for (const view of ['queues', 'waiting?job=x%2Fgang', 'policy', 'cluster']) {
    await show(dark, origin, `#/${view}`);
    await dark.getByLabel('Commands that print the same').waitFor();
    await dark.waitForTimeout(500);
    await readable(dark, `${view}, dark`);
  }
  await dark.context().close();
}

/** Makes decisions for a while, so that the charts have something to show; every tenth call fails. */
async function decideFor(origin, milliseconds) {
  const end = performance.now() + milliseconds;
  for (let at = 0; performance.now() < end; at += 1) {
    const task = { name: at % 10 === 0 ? 'x/unknown' : 'x/gang-0' };
    const body = JSON.stringify(at % 10 === 0 ? { plugins: ['unknown'], tasks: [task] } : { tasks: [task], withFilter: true, limit: 1 });
    const response = await fetch(`${origin}/pumice.v1.DecisionService/Score`, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body });
    await response.text();
    await new Promise((resolve) => setTimeout(resolve, 20 + (at % 7) * 5));
  }
}

async function walkPolicy(page, server, { policy }) {
  const { origin } = server;
  await show(page, origin, '#/policy');
  await page.locator(DOCUMENT).waitFor();
  await page.getByText('The server would accept this document').waitFor();
  const commands = page.getByLabel('Commands that print the same');
  check('policy: before an edit, why nothing can be compared', (await page.getByText('Edit the document first').isVisible()) && !(await commands.innerText()).includes('policy diff'));
  await replaceDocument(page, policy.replace('backfill', 'backfil'));
  await page.locator('.findings li.error').waitFor();
  check('policy: the command of a draft', (await commands.innerText()).includes('pumice policy diff default.yaml --state'), await commands.innerText());
  await page.getByRole('link', { name: 'Decisions' }).click();
  await page.getByRole('row', { name: /^Admit/ }).waitFor();
  await page.getByRole('link', { name: 'Policy' }).click();
  await page.locator('.findings li.error').waitFor();
  check('policy: another view keeps the draft', await page.getByRole('button', { name: 'Discard changes' }).isVisible());
  check('policy: a finding at its line', (await page.locator('.findings li.error').innerText()).startsWith('line 2, column 10 ACTION_UNKNOWN'), await page.locator('.findings li.error').innerText());
  check('policy: a rejected document cannot be pushed', await page.getByRole('button', { name: 'Push …' }).isDisabled());
  bound('check of an edit', await timeOfCheck(page, policy));
  await replaceDocument(page, policy.split('\n').filter((line) => !line.includes('- name: proportion')).join('\n'));
  await page.getByText('What changes in effect').waitFor();
  await page.getByRole('button', { name: 'Show what it would change' }).click();
  const change = page.getByRole('row', { name: /^x\/gang research/ });
  await change.waitFor();
  check('policy: what it would change for x/gang', /6 → no limit\s+3 → 1/.test(await change.innerText()), await change.innerText());
  const impact = await page.getByLabel('What the document would change').innerText();
  check('policy: whether a job would start', impact.includes('No waiting job would start under either policy') && impact.includes('no: 4 of 10 tasks find a node'), impact);
  await readable(page, 'policy');
  await picture(page, 'policy');
  server.run(['policy', 'push', '-'], `# a colleague\n${policy}`);
  await page.getByText('Version 3 became active after this draft began at version 2').waitFor();
  check('policy: a draft does not overwrite the version of a colleague', await page.getByRole('button', { name: 'Push …' }).isDisabled());
  await page.getByRole('button', { name: 'Push over version 3' }).click();
  await page.getByRole('button', { name: 'Push …' }).click();
  await page.getByRole('button', { name: /^Push now/ }).click();
  await page.getByText('Version 4 is active').waitFor();
  check('policy: pushed as version 4', true);
  await page.getByRole('button', { name: 'Roll back to version 2' }).click();
  await page.getByRole('button', { name: 'Roll back now' }).click();
  await page.getByText('Version 5 is active').waitFor();
  check('policy: rolled back as version 5', true);
  await page.getByRole('row', { name: /rollback:2/ }).waitFor();
  await show(page, origin, '#/policy?version=5&against=4');
  await page.locator('.editor .cm-changedLine, .editor .cm-insertedLine').first().waitFor();
  check('policy: the difference of two versions', (await page.locator('.editor .cm-changedLine, .editor .cm-insertedLine').first().innerText()).includes('proportion'));
  await readable(page, 'policy, difference');
}

/** Milliseconds from the change of a document to its findings on the page, the median of five. */
async function timeOfCheck(page, policy) {
  const times = [];
  for (let round = 0; round < 5; round += 1) {
    await replaceDocument(page, policy);
    await page.locator('.findings').waitFor({ state: 'detached' });
    await page.evaluate(() => {
      const editor = document.querySelector('.editor').shadowRoot.querySelector('.cm-content');
      globalThis.checked = new Promise((done) => {
        let start;
        editor.addEventListener('beforeinput', () => (start ??= performance.now()), { capture: true });
        const watch = new MutationObserver(() => {
          if (!start || !document.querySelector('.findings li.error')) return;
          watch.disconnect();
          requestAnimationFrame(() => done(performance.now() - start));
        });
        watch.observe(document.body, { childList: true, subtree: true });
      });
    });
    await replaceDocument(page, policy.replace('backfill', 'backfil'));
    times.push(await page.evaluate(() => globalThis.checked));
  }
  return times.sort((one, other) => one - other)[2];
}

async function walkLargeCluster(browser, server, folder) {
  const { origin } = server;
  const load = (shift) => loadCluster(server, folder, NODES, shift);
  // The built-in policy reads no labels, so a server under it stores none.
  server.run(['policy', 'push', 'examples/queues/policy.yaml']);
  load(0);
  const page = await openPage(browser, origin);
  await show(page, origin, '#/cluster');
  const measures = () => page.evaluate(() => performance.getEntriesByName('pumice:nodes shown').map(({ duration }) => duration));
  const waitForMeasures = (count) => page.waitForFunction((least) => performance.getEntriesByName('pumice:nodes shown').length >= least, count, { timeout: 60_000 });
  await waitForMeasures(1);
  bound('paint of 10,000 nodes', (await measures())[0]);
  const figures = await page.locator('.figures').innerText();
  check('cluster: 10,000 nodes', figures.includes('10,000'), figures.replace(/\s+/g, ' '));
  await readable(page, 'cluster');
  await picture(page, 'cluster');
  const before = (await measures()).length;
  load(1);
  // The page would follow by itself, after a rest of 40 times the duration of its load.
  await page.getByRole('button', { name: 'Refresh' }).click();
  await waitForMeasures(before + 1);
  bound('update of 10,000 nodes', (await measures()).at(-1));

  await page.getByRole('application').focus();
  for (const key of ['ArrowDown', 'ArrowRight', 'ArrowRight', 'Enter']) await page.keyboard.press(key);
  await page.getByRole('region', { name: /^Node node-/ }).waitFor();
  check('cluster: a node by keyboard', true);
  await page.getByRole('button', { name: 'Show as table' }).click();
  await page.getByRole('columnheader', { name: 'stranded' }).waitFor();
  await readable(page, 'cluster as a table');
  await page.context().close();
}

function loadCluster(server, folder, nodes, shift) {
  const file = join(folder, `nodes-${nodes}-${shift}.json`);
  writeFileSync(file, JSON.stringify(largeCluster(nodes, shift)));
  server.run(['state', 'load', file]);
}

/** Many viewers of a server whose state changes each second. */
async function measureViewers(server, folder) {
  loadCluster(server, folder, 1000, 0);
  const { percent, idle, loads } = await costOfViewers(server, VIEWERS, 10);
  check(`${VIEWERS} viewers of 1,000 nodes cost ≤ ${VIEWERS_PERCENT} % of a core`, percent <= VIEWERS_PERCENT * SLACK, `${percent.toFixed(2)} %, and ${idle.toFixed(2)} % without them; ${loads} loads of all nodes`);
}

async function walkAsReader(browser, server) {
  const { origin } = server;
  const page = await openPage(browser, origin);
  await show(page, origin, '#/policy');
  await page.getByText('The server would accept this document').waitFor();
  check('reader: no button to push', (await page.getByRole('button', { name: /Push/ }).count()) === 0);
  check('reader: no button to roll back', (await page.getByRole('button', { name: /Roll back/ }).count()) === 0);
  await replaceDocument(page, 'actions: "backfil"\n');
  await page.locator('.findings li.error').waitFor();
  check('reader: an edit is checked', true);
  const status = await page.evaluate(async () => {
    const headers = { 'Content-Type': 'application/json' };
    const response = await fetch('/pumice.v1.PolicyService/ReloadPolicy', { method: 'POST', headers, body: '{"document": "actions: \\"allocate\\""}' });
    return `${response.status} ${(await response.json()).code}`;
  });
  check('reader: a push is rejected', status === '403 permission_denied', status);
  await page.context().close();
}

async function main() {
  mkdirSync(PICTURES, { recursive: true });
  const folder = mkdtempSync(join(tmpdir(), 'pumice-console-'));
  const bin = program();
  const servers = [];
  const start = async (...options) => {
    const server = await startServer(bin, options);
    servers.push(server);
    return server;
  };
  const flags = ['--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];
  const browser = await driver.launch({ executablePath: chromium(), args: process.getuid?.() === 0 ? ['--no-sandbox', ...flags] : flags });
  try {
    const example = await start();
    example.run(['state', 'load', 'examples/queues/cluster.yaml']);
    example.run(['policy', 'push', 'examples/queues/policy.yaml']);
    const policy = readFileSync(join(ROOT, 'examples/queues/policy.yaml'), 'utf8');
    await walkViews(browser, example, { policy });
    await walkLargeCluster(browser, await start(), folder);
    const identities = join(folder, 'identities.yaml');
    writeFileSync(identities, 'identities: []\nlocal:\n  roles: [read]\n');
    await measureViewers(await start(), folder);
    await walkAsReader(browser, await start('--identities-file', identities));
  } finally {
    await browser.close();
    for (const server of servers) server.stop();
    rmSync(folder, { recursive: true });
  }
  for (const failure of failures) console.error(`FAILED  ${failure}`);
  console.log(`${passed} passed, ${failures.length} failed`);
  process.exitCode = failures.length > 0 ? 1 : 0;
}

await main();
