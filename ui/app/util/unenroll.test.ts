import { expect, test } from "vitest";
import type { UnenrollPreview } from "~/api/types";
import { confirmText, doneText, whyNotLeave } from "./unenroll";

const preview = (will: number, wont = 0): UnenrollPreview => ({ will, wont, items: [] });

test("the button names the host, or exactly how many agents the preview counts", () => {
  expect(confirmText(undefined, 1, "web-01")).toBe("Unenroll web-01");
  expect(confirmText(undefined, 1200)).toBe("Unenroll 1,200 agents");
  expect(confirmText(preview(1199, 1), 1200)).toBe("Unenroll 1,199 agents");
  expect(confirmText(preview(1, 2), 3)).toBe("Unenroll 1 agent");
});

test("the message says whether agents were asked or unenrolled", () => {
  expect(doneText(preview(1), 1, false, "web-01")).toBe("web-01 was asked to unenroll");
  expect(doneText(preview(2), 3, false)).toBe("2 agents were asked to unenroll");
  expect(doneText(preview(1), 3, true)).toBe("1 agent was unenrolled");
  expect(doneText(undefined, 2, true)).toBe("2 agents were unenrolled");
});

test("the button is disabled until a preview unenrolls an agent", () => {
  expect(whyNotLeave(preview(1, 5), null)).toBeNull();
  expect(whyNotLeave(undefined, null)).toMatch(/^Loading/);
  expect(whyNotLeave(preview(3), new Error("no"))).toMatch(/^The preview failed/);
  expect(whyNotLeave(preview(0, 1), null)).toMatch(/^This agent/);
  expect(whyNotLeave(preview(0, 2), null)).toMatch(/^None/);
});
