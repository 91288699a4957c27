import { readFileSync } from 'node:fs';
import { defineConfig } from 'vite';

// What is bundled, with the terms it comes under.
const bundled = ['preact', '@dagrejs/dagre', 'uplot'];

const licences = () => ({
  name: 'licences',
  generateBundle(this: { emitFile(f: { type: 'asset'; fileName: string; source: string }): string }) {
    const source = bundled
      .map((name) => {
        const { version } = JSON.parse(readFileSync(`node_modules/${name}/package.json`, 'utf8'));
        return `${name} ${version}\n\n${readFileSync(`node_modules/${name}/LICENSE`, 'utf8').trim()}\n`;
      })
      .join('\n----\n\n');
    this.emitFile({ type: 'asset', fileName: 'licences.txt', source });
  },
});

// Relative addresses only: the pages work below any path.
export default defineConfig({
  base: './',
  plugins: [licences()],
  build: {
    outDir: process.env.UI_OUT ?? '../dist',
    emptyOutDir: true,
    target: 'es2022',
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    reportCompressedSize: true,
  },
  test: { include: ['src/**/*.test.ts'] },
} as Parameters<typeof defineConfig>[0]);
