/** Starts servers on free ports of the loopback address, and runs commands against them. */

import { execFileSync, spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';

export const ROOT = join(import.meta.dirname, '../../..');

/** The program: PUMICE_BIN, or a debug build. */
export function program() {
  if (process.env.PUMICE_BIN) return process.env.PUMICE_BIN;
  execFileSync(process.env.CARGO || 'cargo', ['build', '--locked', '--quiet', '--bin', 'pumice'], { cwd: ROOT, stdio: 'inherit' });
  return join(process.env.CARGO_TARGET_DIR || join(ROOT, 'target'), 'debug/pumice');
}

function freePort() {
  return new Promise((resolve, reject) => {
    const probe = createServer().on('error', reject);
    probe.listen(0, '127.0.0.1', () => {
      const { port } = probe.address();
      probe.close(() => resolve(port));
    });
  });
}

/** A running server: `origin` of its HTTP port, `run` for commands against it, `stop`. */
export async function startServer(bin, options = []) {
  const [grpc, http] = [await freePort(), await freePort()];
  const child = spawn(bin, ['serve', '--grpc-address', `127.0.0.1:${grpc}`, '--http-address', `127.0.0.1:${http}`, ...options], { cwd: ROOT, stdio: ['ignore', 'pipe', 'pipe'] });
  let log = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (text) => (log += text));
  const origin = `http://127.0.0.1:${http}`;
  for (let tries = 0; ; tries += 1) {
    const ready = await fetch(`${origin}/readyz`).then((response) => response.ok, () => false);
    if (ready) break;
    if (tries === 300 || child.exitCode !== null) throw new Error(`the server did not start:\n${log}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  return {
    origin,
    run: (parts, input) => {
      const environment = { ...process.env, PUMICE_SERVER: `http://127.0.0.1:${grpc}` };
      return execFileSync(bin, parts, { cwd: ROOT, env: environment, input, encoding: 'utf8', stdio: ['pipe', 'pipe', 'pipe'] });
    },
    /** Seconds of processor time that the server has taken. */
    processorTime: () => {
      const fields = readFileSync(`/proc/${child.pid}/stat`, 'utf8').replace(/^.*\) /, '').split(' ');
      // Fields 14 and 15 are hundredths of a second in user and in system mode; the two before the last parenthesis are gone.
      return (Number(fields[11]) + Number(fields[12])) / 100;
    },
    stop: () => child.kill(),
  };
}
