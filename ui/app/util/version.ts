/** Comparison of versions, as in semver.org; alphabetical order would put 1.10.0 before 1.9.0. */

interface Parsed {
  core: [number, number, number];
  pre: string[];
  build: string;
}

const pattern = /^v?(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.-]+))?(?:\+([0-9A-Za-z.-]+))?$/;

function parse(text: string): Parsed | null {
  const m = pattern.exec(text.trim());
  if (!m) return null;
  return { core: [Number(m[1]), Number(m[2]), Number(m[3])], pre: m[4] ? m[4].split(".") : [], build: m[5] ?? "" };
}

export function isVersion(text: string): boolean {
  return parse(text) !== null;
}

/** compareVersions is negative if a is older. Strings that are not versions sort first. */
export function compareVersions(a: string, b: string): number {
  const x = parse(a);
  const y = parse(b);
  if (!x || !y) return x ? 1 : y ? -1 : a.localeCompare(b);
  for (let i = 0; i < 3; i++) {
    const d = x.core[i]! - y.core[i]!;
    if (d !== 0) return d;
  }
  // They differ only in the build: semver treats them as equal, but packages and the list need an order.
  return comparePre(x.pre, y.pre) || compareLists(split(x.build), split(y.build));
}

function split(build: string): string[] {
  return build === "" ? [] : build.split(".");
}

/** A version without a prerelease comes after all its prereleases. */
function comparePre(a: string[], b: string[]): number {
  if (a.length === 0 || b.length === 0) return b.length - a.length;
  return compareLists(a, b);
}

function compareLists(a: string[], b: string[]): number {
  for (let i = 0; i < Math.max(a.length, b.length); i++) {
    const x = a[i];
    const y = b[i];
    if (x === undefined) return -1;
    if (y === undefined) return 1;
    const d = compareWords(x, y);
    if (d !== 0) return d;
  }
  return 0;
}

function compareWords(x: string, y: string): number {
  const xn = /^\d+$/.test(x);
  const yn = /^\d+$/.test(y);
  if (xn && yn) return Number(x) - Number(y);
  if (xn !== yn) return xn ? -1 : 1;
  return x < y ? -1 : x > y ? 1 : 0;
}

export function newest(versions: readonly string[]): string | undefined {
  return versions.reduce<string | undefined>((best, v) => (best === undefined || compareVersions(v, best) > 0 ? v : best), undefined);
}
