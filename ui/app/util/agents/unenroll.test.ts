import { expect, test } from "vitest";
import type { UnenrollPreview } from "~/api/types";
import { confirmText, doneText, whyNotLeave } from "./unenroll";

const preview = (will: number, wont = 0): UnenrollPreview => ({ will, wont, items: [] });

test("the button names the host, or exactly how many agents the preview counts", () => {
  expect(confirmText(undefined, 1, "web-01")).toBe("Unenrol web-01");
  expect(confirmText(undefined, 1200)).toBe("Unenrol 1,200 hosts");
  expect(confirmText(preview(1199, 1), 1200)).toBe("Unenrol 1,199 hosts");
  expect(confirmText(preview(1, 2), 3)).toBe("Unenrol 1 host");
});

test("the message says whether agents were asked or unenrolled", () => {
  expect(doneText(preview(1), 1, false, "web-01")).toBe("web-01 was asked to unenrol");
  expect(doneText(preview(2), 3, false)).toBe("2 hosts were asked to unenrol");
  expect(doneText(preview(1), 3, true)).toBe("1 host was unenrolled");
  expect(doneText(undefined, 2, true)).toBe("2 hosts were unenrolled");
});

test("the button is disabled until a preview unenrolls an agent", () => {
  expect(whyNotLeave(preview(1, 5), null)).toBeNull();
  expect(whyNotLeave(undefined, null)).toMatch(/^The preview is being read/);
  expect(whyNotLeave(preview(3), new Error("no"))).toMatch(/^The preview could not be read/);
  expect(whyNotLeave(preview(0, 1), null)).toMatch(/^This host/);
  expect(whyNotLeave(preview(0, 2), null)).toMatch(/^None/);
});
