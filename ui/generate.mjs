// Writes the types of the admin API from its OpenAPI document.
//
// The generator needs the compiler API of TypeScript 5, which TypeScript 7 no
// longer has; so it runs in npm's own cache with both versions pinned, apart
// from this project's dependencies.
import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));

execFileSync(
  "npm",
  [
    "exec",
    "--yes",
    "--package=openapi-typescript@7.13.0",
    "--package=typescript@5.9.3",
    "--",
    "openapi-typescript",
    here("../server/api/adminapi/openapi.yaml"),
    "--output",
    here("./app/api/__generated__/admin.ts"),
  ],
  { stdio: "inherit" },
);
