import { expect, test } from "vitest";
import { pages } from "~/testing/page";

const page = pages();

test("a component leads to the agents that run it", async () => {
  page.answers["/api/v1/components"] = {
    items: [
      {
        name: "web",
        runtimes: ["docker", "systemd"],
        agents: 1200,
        healthy: 1100,
        upgrading: 3,
        failed: 2,
        versions: [
          { version: "2.4.0", agents: 1199 },
          { version: "", agents: 1 },
        ],
      },
    ],
  };
  await page.open("/components", "2.4.0");
  const row = document.querySelector("tbody tr")!;
  expect([...row.children].map((c) => c.textContent)).toEqual(["web", "2.4.01,199 hostsnot installed1 hosts", "1,200", "1,100", "3", "2", "docker, systemd"]);
  expect(new URL(row.querySelector("a")!.href, "http://server").searchParams.get("kuery")).toBe("components.name: web");
});

test("without components the page says how to add one", async () => {
  page.answers["/api/v1/components"] = { items: [] };
  await page.open("/components", "muster policies update ID --components components.yaml");
});
