/** Fleets as text: what users write of them, as YAML, and errors at their lines. */
import { stringify } from "yaml";
import type { Fleet } from "~/api/types";
import { type Fault, lacks, lineOf, type Parsed, parse } from "~/util/plan/planYaml";

/** writtenOf returns what users write of a fleet, without what the server adds. */
export function writtenOf({ apiVersion, kind, metadata: { name, labels, annotations }, spec }: Fleet): Fleet {
  return { apiVersion, kind, metadata: { name, ...(labels && { labels }), ...(annotations && { annotations }) }, spec };
}

/** fleetText shows values as they are stored: a duration written in another way would be a change. */
export const fleetText = (f: Fleet): string => stringify(writtenOf(f));

/** parseFleet parses a fleet. With a name it is a change of that one, whose name stays. The server checks the rest. */
export function parseFleet(text: string, name?: string): Parsed<Fleet> {
  return parse<Fleet>(text, (f) => missing(f, name), "fleet");
}

function missing(f: Fleet, name?: string): Fault[] {
  const faults: Fault[] = [];
  if (!f.apiVersion) faults.push(lacks("apiVersion", "write “apiVersion: muster.dev/v1alpha2”."));
  if (!f.kind) faults.push(lacks("kind", "write “kind: Fleet”."));
  if (!f.metadata?.name) faults.push(lacks("metadata.name", "name the fleet."));
  else if (name !== undefined && f.metadata.name !== name) {
    faults.push({ line: 0, field: "metadata.name", text: `metadata.name is ${f.metadata.name}, but a fleet keeps its name: create another one instead.` });
  }
  if (!f.spec?.selector) faults.push(lacks("spec.selector", "name agents, policies or labels, a kuery, or use “all: true”."));
  return faults;
}

/** The first word of a line of the server's error, if it is the path of a field. */
const PATH = /^(?:apiVersion|kind|metadata|spec|status)(?:[.[][^\s:,]*)?(?=[\s:,])/;

/** fleetFaults locates the server's errors, one on each line of its message, at the fields that they name. */
export function fleetFaults(text: string, message: string): Fault[] {
  return message
    .split("\n")
    .filter((l) => l.trim() !== "")
    .map((l) => {
      const field = PATH.exec(l)?.[0] ?? "";
      return { line: field === "" ? 0 : lineOf(text, field.replaceAll('"', "")), field, text: l };
    });
}
