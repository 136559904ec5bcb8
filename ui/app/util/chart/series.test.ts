import { describe, expect, it } from "vitest";
import { healthLines, lastSample, pointText, share, stacked, thinned, totals, versionLines } from "./series";

const line = (name: string, ...values: (number | null)[]) => ({ name, values });

describe("versionLines", () => {
  const versions = [line("2.3.0", 5), line("", 1), line("2.10.0", 2), line("2.4.0", 9)];
  it("has the newest first and the others last", () => {
    expect(versionLines({ versions }).map((l) => l.key)).toEqual(["2.10.0", "2.4.0", "2.3.0", ""]);
  });
  it("keeps the colours of versions when a newer one appears", () => {
    const colors = (of: typeof versions) => Object.fromEntries(versionLines({ versions: of }).map((l) => [l.key, l.color]));
    expect(colors([...versions, line("2.11.0", 1)])).toMatchObject(colors(versions));
  });
});

describe("healthLines", () => {
  it("puts what is wrong first, leaves out what no host has, and keeps what it does not know", () => {
    const health = [line("healthy", 9), line("dreaming", 1), line("offline", null, 2), line("failed", 1), line("degraded", 0)];
    expect(healthLines({ health }).map((l) => l.label)).toEqual(["Failed", "Offline", "Healthy", "dreaming"]);
  });
});

describe("stacked", () => {
  it("adds lines, and has a gap where there is no sample at all", () => {
    const lines = [{ values: [1, null, null] }, { values: [2, 3, null] }];
    expect(stacked(lines)).toEqual([
      [1, 0, null],
      [3, 3, null],
    ]);
    expect(totals(lines)).toEqual([3, 3, null]);
    expect(lastSample(lines)).toBe(1);
    expect(lastSample([])).toBe(-1);
    expect(totals([])).toEqual([]);
  });
});

describe("thinned", () => {
  it("keeps the last position and never more than allowed", () => {
    expect(thinned(3, 24)).toEqual([0, 1, 2]);
    for (const length of [25, 96, 288, 721]) {
      const kept = thinned(length, 24);
      expect(kept).toHaveLength(24);
      expect(new Set(kept).size).toBe(24);
      expect(kept.at(-1)).toBe(length - 1);
    }
  });
});

describe("words", () => {
  it("reads all values of a time", () => {
    const lines = [
      { key: "a", label: "2.4.1", color: "", values: [7, null] },
      { key: "b", label: "2.4.0", color: "", values: [1200, null] },
    ];
    expect(pointText(lines, 0, "10:00", (n) => n.toLocaleString("en"))).toBe("10:00: 2.4.1 7, 2.4.0 1,200");
    expect(pointText(lines, 1, "10:05", String)).toBe("10:05: no sample");
  });
  it("rounds a share to 0 and 100 only if it is that", () => {
    expect(share(99_999, 100_000)).toBe("99.9 %");
    expect(share(1, 100_000)).toBe("< 0.1 %");
    expect(share(0, 5)).toBe("0 %");
    expect(share(5, 5)).toBe("100 %");
    expect(share(1, 2)).toBe("50 %");
    expect(share(0, 0)).toBe("0 %");
  });
});
