/** The form of a group's plan: what it knows of the text, and changes in it. Members and their plans are written as text. */
import { isMap, isScalar, parseDocument } from "yaml";
import { schemas } from "~/api/__generated__/planSchema";
import type { GroupPlan } from "~/api/types";
import { setValue } from "~/util/plan/planEdit";

export interface GroupForm {
  name: string;
  description: string;
  failurePolicy: string;
  acceptDrift: boolean;
}

const paths = { name: "name", description: "description", failurePolicy: "failure_policy", acceptDrift: "accept_drift" } as const;

const order = () => Object.keys(schemas.GroupPlan!.properties!);

/** readGroupForm returns undefined if the text is not YAML. */
export function readGroupForm(text: string): GroupForm | undefined {
  const doc = parseDocument(text);
  if (doc.errors.length > 0 || !isMap(doc.contents)) return undefined;
  const word = (key: string) => {
    const node = doc.get(key, true);
    return isScalar(node) && node.value !== null ? String(node.source ?? node.value) : "";
  };
  return {
    name: word(paths.name),
    description: word(paths.description),
    failurePolicy: word(paths.failurePolicy),
    acceptDrift: doc.get(paths.acceptDrift) === true,
  };
}

/** writeGroupForm writes the fields that are given. */
export function writeGroupForm(text: string, changed: Partial<GroupForm>): string {
  let next = text;
  for (const key of Object.keys(changed) as (keyof GroupForm)[]) {
    const value = changed[key];
    next = setValue(next, [paths[key]], value === "" || value === false ? undefined : value, order);
  }
  return next;
}

/** writeMemberVersion sets the version that a member is to reach. */
export function writeMemberVersion(text: string, member: string, version: string): string {
  return setValue(text, ["desired_versions", member], version === "" ? undefined : version, order);
}

export interface MemberRow {
  name: string;
  version: string;
  component: string;
  soak: string;
}

/** membersOf returns the members of a plan that may be half written. */
export function membersOf(plan: GroupPlan | undefined): MemberRow[] {
  if (!Array.isArray(plan?.members)) return [];
  return plan.members.map((m) => ({
    name: String(m?.name ?? ""),
    version: String(plan.desired_versions?.[m?.name] ?? ""),
    component: m?.plan?.component ?? "",
    soak: m?.soak ?? "",
  }));
}
