import { act } from "react";
import { expect, test, vi } from "vitest";
import { button, click, pages, until } from "~/testing/page";

// A busy machine needs some seconds to draw a whole page.
vi.setConfig({ testTimeout: 30_000 });

const page = pages();

const key = { id: "k2", active: true, name: "ci", created_at: "2026-01-01T00:00:00Z", created_by: "ann" };

test("the secret of a new admin key is shown once", async () => {
  page.answers["/api/v1/admin_keys"] = {
    items: [
      { ...key, id: "k", name: "kim" },
      { ...key, expire_at: "2026-01-02T00:00:00Z" },
    ],
    total: 2,
    page: 1,
    perPage: 50,
    item: { ...key, id: "k3", name: "robot", api_key: "c2VjcmV0" },
  };
  await page.open("/admin-keys", "Expired");
  expect([...document.querySelectorAll("tbody tr")].map((r) => [r.children[0]!.textContent, r.children[1]!.textContent])).toEqual([
    ["kimyou", "Active"],
    ["ci", "Expired"],
  ]);
  await click(button("Create key…"));
  const name = document.querySelector<HTMLInputElement>("[role=dialog] input[maxlength='100']")!;
  await act(async () => {
    Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value")!.set!.call(name, "robot");
    name.dispatchEvent(new Event("input", { bubbles: true }));
  });
  await click(button("Create key"));
  await until(() => document.body.textContent!.includes("c2VjcmV0"), "the secret is shown");
  expect(page.sent).toEqual([{ path: "/api/v1/admin_keys", body: { name: "robot", expiration: "2160h" } }]);
  await click(button("Done"));
  await until(() => !document.body.textContent!.includes("c2VjcmV0"), "the secret is gone");
});
