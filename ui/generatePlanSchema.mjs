// Writes the schemas of plans and the types of events from the OpenAPI document of the admin API: the
// editor checks what is typed against the schemas, so that all errors are shown at once, and the event
// stream listens for the types. Apart from generate.mjs, which needs no installed package. With --print it writes to the standard output instead, for the test.
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parse } from "yaml";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));

const { schemas } = parse(readFileSync(here("../server/api/adminapi/openapi.yaml"), "utf8")).components;
const used = {};

/** Copies what a check or a reader needs of a schema, and what it refers to. */
function take(schema) {
  if (schema.$ref) {
    const name = schema.$ref.split("/").pop();
    if (!(name in used)) {
      used[name] = {};
      used[name] = take(schemas[name]);
    }
    return { ref: name };
  }
  const out = {};
  for (const key of ["type", "enum", "minimum", "description"]) if (schema[key] !== undefined) out[key] = schema[key];
  if (schema.properties) out.properties = Object.fromEntries(Object.entries(schema.properties).map(([k, v]) => [k, take(v)]));
  if (typeof schema.additionalProperties === "object") out.values = take(schema.additionalProperties);
  if (schema.items) out.items = take(schema.items);
  return out;
}

for (const name of ["Plan", "GroupPlan"]) take({ $ref: `/${name}` });
const text = `/** The schemas of plans and the types of events, of the OpenAPI document. Made by generatePlanSchema.mjs; do not edit. */
export interface Schema {
  /** The name of the schema that it is. */
  ref?: string;
  type?: string;
  enum?: string[];
  minimum?: number;
  description?: string;
  properties?: Record<string, Schema>;
  /** Of all properties of a map. */
  values?: Schema;
  items?: Schema;
}

export const schemas: Record<string, Schema> = {
${Object.entries(used)
  .map(([name, schema]) => `  ${name}: ${JSON.stringify(schema)},`)
  .join("\n")}
};

/** EventSource delivers only types that are listened for. */
export const eventTypes: readonly string[] = ${JSON.stringify(schemas.Event.properties.type["x-extensible-enum"])};
`;

if (process.argv.includes("--print")) process.stdout.write(text);
else writeFileSync(here("./app/api/__generated__/planSchema.ts"), text);
