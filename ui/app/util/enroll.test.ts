import { expect, test } from "vitest";
import type { EnrollmentKey, Package } from "~/api/types";
import { installCommand, keyLabel, newestAgent, withCreated } from "./enroll";

const server = { agent_url: "https://fleet.example.com:8220", ca_pin: "sha256:ab", publisher_keys: ["RWQ1", "RWQ2"] };
const pkg = (version: string, more: Partial<Package> = {}): Package => ({ file: `muster-agent-${version}-linux-amd64.tar.gz`, version, snapshot: false, hash: "", os: "linux", arch: "amd64", size: 1, sha256: "", sha512: "", key_id: "", pushed_at: "", ...more });

test("one line unpacks, installs and enrols", () => {
  expect(installCommand("linux-amd64", "muster-agent-2.4.0-linux-amd64.tar.gz", server, "T==")).toBe(
    "tar xzf muster-agent-2.4.0-linux-amd64.tar.gz && cd muster-agent-2.4.0-linux-amd64 && sudo ./data/*/muster-agent install --url https://fleet.example.com:8220 --token T== --ca-pin sha256:ab --trust-key RWQ1 --trust-key RWQ2",
  );
  expect(installCommand("windows-amd64", "a.zip", { ...server, trust_root: "sha256:cd" }, "T")).toContain("muster-agent.exe) install --url https://fleet.example.com:8220 --token T --ca-pin sha256:ab --trust-root sha256:cd");
});

test("the newest release is installed, not a snapshot, a component or what is withheld", () => {
  const list = [pkg("2.9.0"), pkg("2.10.0"), pkg("2.11.0-SNAPSHOT", { snapshot: true }), pkg("3.0.0", { component: "web" }), pkg("3.1.0", { withheld: "below the floor" }), pkg("4.0.0", { arch: "arm64" })];
  expect(newestAgent(list, "linux-amd64")!.version).toBe("2.10.0");
  expect(newestAgent(list, "darwin-arm64")).toBeUndefined();
});

test("a key is called by its name", () => {
  expect(keyLabel({ id: "4310ba98", name: "CI (4310ba98)" })).toBe("CI");
  expect(keyLabel({ id: "4310ba98-ca8b", name: "" })).toBe("4310ba98");
  expect(keyLabel({ id: "4310ba98-ca8b", name: "4310ba98-ca8b" })).toBe("4310ba98");
});

test("the token of a new key is kept, also if the server does not send it again", () => {
  const key = (id: string, more: Partial<EnrollmentKey> = {}): EnrollmentKey => ({ id, active: true, api_key_id: id, name: id, policy_id: "web", created_at: "", ...more });
  const created = key("b", { api_key: "T" });
  expect(withCreated([key("a")], created).map((k) => k.id)).toEqual(["b", "a"]);
  expect(withCreated([key("a"), key("b", { active: false })], created)[0]).toMatchObject({ id: "b", active: false, api_key: "T" });
  expect(withCreated([key("a")], null)).toEqual([key("a")]);
});
