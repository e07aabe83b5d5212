/** Finds Chromium or Chrome, and installs Debian's package where the system has neither. */

import { execFileSync } from 'node:child_process';
import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';

const NAMES = ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable', 'chrome'];

/** Path of the program: CHROME, or the first of the usual names on the path. */
export function chromium() {
  if (process.env.CHROME) return process.env.CHROME;
  const found = installed();
  if (found) return found;
  if (process.getuid?.() !== 0) throw new Error('no Chromium or Chrome is installed: install one, or name it in CHROME');
  const apt = (...parts) => execFileSync('apt-get', parts, { stdio: 'inherit', env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' } });
  apt('update', '-qq');
  apt('install', '-qq', '--yes', '--no-install-recommends', 'chromium', 'fonts-dejavu-core');
  return installed();
}

function installed() {
  const folders = (process.env.PATH ?? '').split(delimiter);
  return NAMES.flatMap((name) => folders.map((folder) => join(folder, name))).find(isExecutable);
}

function isExecutable(path) {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
