/** Packages by product and version, and the files of an upload by archive. */
import type { Package } from "~/api/types";
import { compareVersions } from "~/util/version";

/** The archives of one version of a product, one for each platform. */
export interface Release {
  id: string;
  /** "Agent", "Elastic Agent", or the name of a component. */
  product: string;
  component?: string;
  version: string;
  snapshot: boolean;
  files: Package[];
  /** Of all files. */
  size: number;
  /** Publisher keys. */
  keyIds: string[];
  /** The signed targets file names some of them. */
  signed: boolean;
  /** Why hosts that trust the root do not install one of them. */
  withheld?: string;
  pushedAt: string;
  pushedBy: string[];
}

export const productOf = (p: Pick<Package, "component" | "maker">): string => p.component ?? (p.maker === "elastic" ? "Elastic Agent" : "Agent");

/** releasesOf groups packages. Agents come first, then components by name, the newest version of each first. */
export function releasesOf(packages: readonly Package[]): Release[] {
  const out = new Map<string, Release>();
  for (const p of packages) {
    const product = productOf(p);
    const id = `${p.maker ?? ""} ${p.component ?? ""} ${p.version}`;
    const r = out.get(id) ?? {
      id,
      product,
      component: p.component,
      version: p.version,
      snapshot: p.snapshot,
      files: [],
      size: 0,
      keyIds: [],
      signed: false,
      pushedAt: p.pushed_at,
      pushedBy: [],
    };
    r.files.push(p);
    r.size += p.size;
    if (p.key_id && !r.keyIds.includes(p.key_id)) r.keyIds.push(p.key_id);
    if (p.pushed_by && !r.pushedBy.includes(p.pushed_by)) r.pushedBy.push(p.pushed_by);
    r.signed ||= p.signed ?? false;
    r.withheld ??= p.withheld;
    if (p.pushed_at > r.pushedAt) r.pushedAt = p.pushed_at;
    out.set(id, r);
  }
  for (const r of out.values()) r.files.sort((a, b) => platformOf(a).localeCompare(platformOf(b)));
  return [...out.values()].sort(
    (a, b) =>
      Number(a.component !== undefined) - Number(b.component !== undefined) || a.product.localeCompare(b.product) || compareVersions(b.version, a.version),
  );
}

export const platformOf = (p: Pick<Package, "os" | "arch">): string => `${p.os}/${p.arch}`;

const osWord: Record<string, string> = { linux: "Linux", darwin: "macOS", windows: "Windows" };

/** platformsText names the platforms by system: "Linux amd64, arm64 · macOS arm64". */
export function platformsText(files: readonly Pick<Package, "os" | "arch">[]): string {
  const archs = new Map<string, string[]>();
  for (const f of files) archs.set(f.os, [...(archs.get(f.os) ?? []), f.arch]);
  return [...archs].map(([os, list]) => `${osWord[os] ?? os} ${[...new Set(list)].join(", ")}`).join(" · ");
}

/** The query that finds the hosts which run a release. */
export const runsReleaseQuery = (r: Release): string =>
  r.component ? `components.name: "${r.component}" and components.version: "${r.version}"` : `agent.version: "${r.version}"`;

export interface Upload<F> {
  archive: F;
  openpgp?: F;
  digest?: F;
}

const SIDE = { ".asc": "openpgp", ".sha512": "digest" } as const;

/** uploadsOf joins archives with the files that vouch for them, by their names. Others are left over. */
export function uploadsOf<F extends { name: string }>(files: readonly F[]): { uploads: Upload<F>[]; left: { file: F; why: string }[] } {
  const uploads = new Map<string, Upload<F>>();
  for (const f of files) if (/\.(tar\.gz|zip)$/.test(f.name)) uploads.set(f.name, { archive: f });
  const left: { file: F; why: string }[] = [];
  for (const f of files) {
    if (uploads.has(f.name)) continue;
    const [ending, field] = Object.entries(SIDE).find(([e]) => f.name.endsWith(e)) ?? [];
    const upload = ending ? uploads.get(f.name.slice(0, -ending.length)) : undefined;
    if (upload && field) upload[field] = f;
    else left.push({ file: f, why: ending ? "Its archive is missing: choose both." : "It is no archive (.tar.gz or .zip) and no signature (.asc, .sha512)." });
  }
  return { uploads: [...uploads.values()], left };
}
