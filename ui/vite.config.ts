import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import react from "@vitejs/plugin-react";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/**
 * Writes .br and .gz beside every file worth it, so that the server does not compress. index.html
 * is left out: the server writes a nonce into it for each request.
 */
function precompress(): Plugin {
  const worth = /\.(js|css|svg)$/;
  return {
    name: "muster-precompress",
    apply: "build",
    closeBundle() {
      const dist = here("./dist");
      for (const entry of readdirSync(dist, { recursive: true, encoding: "utf8" })) {
        if (!worth.test(entry)) continue;
        const path = `${dist}/${entry}`;
        const bytes = readFileSync(path);
        if (bytes.length < 1024) continue; // files smaller than a packet gain nothing
        writeFileSync(`${path}.gz`, gzipSync(bytes, { level: 9 }));
        writeFileSync(`${path}.br`, brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } }));
      }
    },
  };
}

/** emptyOutDir would remove dist/.gitkeep, without which the Go package does not build on a fresh clone. */
function keepDist(): Plugin {
  return {
    name: "muster-keep-dist",
    apply: "build",
    closeBundle() {
      writeFileSync(here("./dist/.gitkeep"), "");
    },
  };
}

/** Sends the API's requests to the server that MUSTER_SERVER names, without which the pages have nothing to show. */
function needServer(): Plugin {
  return {
    name: "muster-server",
    apply: "serve",
    config(_, { isPreview }) {
      if (process.env.VITEST) return;
      const target = process.env.MUSTER_SERVER;
      if (!target) {
        throw new Error(
          `${isPreview ? "npx vite preview" : "npm run dev"} shows the pages of a server: name it, as in\n\n  MUSTER_SERVER=https://localhost:8221 npm run dev\n\n\`go tool mage fleet\` runs one with a simulated fleet, and prints its address.`,
        );
      }
      const proxy = { "/api": { target, changeOrigin: true, secure: false } };
      return { server: { proxy }, preview: { proxy } };
    },
  };
}

export default defineConfig({
  plugins: [react(), precompress(), keepDist(), needServer()],
  resolve: { alias: { "~": here("./app") } },
  build: {
    outDir: "dist",
    emptyOutDir: true,
    sourcemap: false,
    target: "es2023",
    // The first versions with light-dark(), which app.css uses.
    cssTarget: ["chrome123", "firefox120", "safari17.5"],
    assetsInlineLimit: 0, // data: URLs would need an exception in the Content-Security-Policy
    chunkSizeWarningLimit: 900,
  },
  test: {
    testTimeout: 60_000, // several waits of app/testing/page.tsx
    projects: [
      // Rules and texts need no page, and share nothing that a test changes.
      { extends: true, test: { name: "rules", environment: "node", isolate: false, include: ["app/**/*.test.ts"] } },
      { extends: true, test: { name: "pages", environment: "happy-dom", include: ["app/**/*.test.tsx"] } },
    ],
  },
});
