import { expect, test } from "vitest";
import type { Package } from "~/api/types";
import { platformsText, releasesOf, runsReleaseQuery, uploadsOf } from "./packages";

const pkg = (file: string, more: Partial<Package>): Package => ({
  file,
  version: "2.4.0",
  snapshot: false,
  hash: "",
  os: "linux",
  arch: "amd64",
  size: 10,
  sha256: "",
  sha512: "",
  key_id: "K1",
  pushed_at: "2026-01-01T00:00:00Z",
  ...more,
});

test("packages are grouped by product and version", () => {
  const list = releasesOf([
    pkg("c", { component: "web", pushed_by: "ann" }),
    pkg("a", { arch: "arm64", pushed_at: "2026-01-02T00:00:00Z", pushed_by: "ben" }),
    pkg("b", { pushed_by: "ann", withheld: "below the floor" }),
    pkg("d", { version: "2.10.0" }),
    pkg("e", { maker: "elastic", version: "8.15.5" }),
  ]);
  expect(list.map((r) => `${r.product} ${r.version} ${r.files.length}`)).toEqual(["Agent 2.10.0 1", "Agent 2.4.0 2", "Elastic Agent 8.15.5 1", "web 2.4.0 1"]);
  expect(list[1]).toMatchObject({ size: 20, withheld: "below the floor", pushedAt: "2026-01-02T00:00:00Z", pushedBy: ["ben", "ann"] });
  expect(platformsText([...list[1]!.files, { os: "darwin", arch: "arm64" }])).toBe("Linux amd64, arm64 · macOS arm64");
  expect(runsReleaseQuery(list[3]!)).toBe('components.name: "web" and components.version: "2.4.0"');
});

test("signatures belong to the archive of their name", () => {
  const named = (...names: string[]) => names.map((name) => ({ name }));
  const { uploads, left } = uploadsOf(named("a.tar.gz", "b.tar.gz.asc", "notes.txt", "e.zip", "e.zip.asc", "e.zip.sha512"));
  expect(uploads).toEqual([
    { archive: { name: "a.tar.gz" } },
    { archive: { name: "e.zip" }, openpgp: { name: "e.zip.asc" }, digest: { name: "e.zip.sha512" } },
  ]);
  expect(left.map((l) => l.file.name)).toEqual(["b.tar.gz.asc", "notes.txt"]);
});
