import { expect, test } from "vitest";
import type { EnrollmentKey } from "~/api/types";
import { keyLabel, withCreated } from "./enroll";

test("a key is called by its name", () => {
  expect(keyLabel({ id: "4310ba98", name: "CI (4310ba98)" })).toBe("CI");
  expect(keyLabel({ id: "4310ba98-ca8b", name: "" })).toBe("4310ba98");
  expect(keyLabel({ id: "4310ba98-ca8b", name: "4310ba98-ca8b" })).toBe("4310ba98");
});

test("the token of a new key is kept, also if the server does not send it again", () => {
  const key = (id: string, more: Partial<EnrollmentKey> = {}): EnrollmentKey => ({
    id,
    active: true,
    api_key_id: id,
    name: id,
    policy_id: "web",
    created_at: "",
    ...more,
  });
  const created = key("b", { api_key: "T" });
  expect(withCreated([key("a")], created).map((k) => k.id)).toEqual(["b", "a"]);
  expect(withCreated([key("a"), key("b", { active: false })], created)[0]).toMatchObject({ id: "b", active: false, api_key: "T" });
  expect(withCreated([key("a")], null)).toEqual([key("a")]);
});
