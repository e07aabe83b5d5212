import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';

/** Vite plugin that writes licences.txt: the licence of every package that has code in the output. */
export function licences() {
  return {
    name: 'licences',
    apply: 'build',
    generateBundle() {
      const folders = new Set();
      for (const module of this.getModuleIds()) {
        const found = packageFolder(module);
        if (found) folders.add(found);
      }
      const parts = [...folders].map(licenceOf).sort();
      this.emitFile({ type: 'asset', fileName: 'licences.txt', source: parts.join(`\n${'-'.repeat(80)}\n\n`) });
    },
  };
}

/** Folder of the package that a module belongs to. Undefined: the module is our own. */
function packageFolder(module) {
  if (!module.includes('/node_modules/')) return undefined;
  let folder = dirname(module.replace(/^\0/, '').split('?')[0]);
  while (folder !== dirname(folder)) {
    const description = join(folder, 'package.json');
    if (existsSync(description) && JSON.parse(readFileSync(description, 'utf8')).version) return folder;
    folder = dirname(folder);
  }
  return undefined;
}

function licenceOf(folder) {
  const { name, version, license } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
  const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
  if (!file) throw new Error(`${name} has no licence file: name its licence in licences.js, or use another package`);
  return `${name} ${version} (${license})\n\n${readFileSync(join(folder, file), 'utf8').trim()}\n`;
}
