import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import react from "@vitejs/plugin-react";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";
import { mockFleet } from "./mock/plugin.ts";

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

// MUSTER_SERVER=https://localhost:8221 npm run dev  uses a real server;
// without it the mock fleet answers.
const server = process.env.MUSTER_SERVER;

export default defineConfig({
  plugins: [react(), precompress(), keepDist(), ...(server || process.env.VITEST ? [] : [mockFleet()])],
  resolve: { alias: { "~": here("./app") } },
  server: server ? { proxy: { "/api": { target: server, changeOrigin: true, secure: false } } } : {},
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
    environment: "happy-dom",
    include: ["app/**/*.test.ts", "app/**/*.test.tsx", "mock/**/*.test.ts"],
  },
});
