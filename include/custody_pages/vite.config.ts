import { defineConfig } from "vite";

const PAGES = ["search", "event", "lineage", "run", "replay", "status", "proof", "keep", "sql"];

export default defineConfig({
  // The documents lie below any path that they are mounted at.
  base: "./",
  build: {
    outDir: "built",
    emptyOutDir: true,
    target: "es2023",
    // Nothing is embedded as data: the policy of the pages allows scripts and styles from their own origin alone.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rolldownOptions: { input: Object.fromEntries(PAGES.map((page) => [page, `${page}.html`])) },
  },
});
