import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vite';
import { licences } from './licences.js';

// A server to develop against: `pumice serve`, or the address in PUMICE_HTTP.
const server = process.env.PUMICE_HTTP ?? 'http://127.0.0.1:7462';
// The server rejects calls with a foreign origin, such as those from Vite's own port.
const proxy = {
  target: server,
  changeOrigin: true,
  configure(forward) {
    forward.on('proxyReq', (request) => {
      for (const header of ['origin', 'sec-fetch-site']) request.removeHeader(header);
    });
  },
};

export default defineConfig({
  base: './',
  plugins: [svelte(), licences()],
  // A preload polyfill and a data URL would be inline content, which the content security policy forbids.
  build: { target: 'es2022', modulePreload: false, assetsInlineLimit: 0, reportCompressedSize: false, chunkSizeWarningLimit: 800 },
  server: { proxy: { '/pumice.v1': proxy, '/metrics': proxy } },
  test: { include: ['test/**/*.test.ts'] },
});
