/** The plan that the page for a new rollout begins with. The defaults of the other keys are the server's. */

import { stringify } from "yaml";

/** What a link to the page gives, such as the selection of agents. */
export interface Prefill {
  version?: string;
  component?: string;
  kuery?: string;
  agents?: string[];
}

/** planExample has no hosts unless they are given: a rollout to the whole fleet is a choice, not a default. */
export function planExample({ version, component, kuery, agents }: Prefill): string {
  const select = agents ? `agents: ${JSON.stringify(agents)}` : `kuery: ${JSON.stringify(kuery ?? "")}`;
  return `name: ${version ? quoted(`${component ?? "Agents"} to ${version}`) : '""'}
${component ? `component: ${quoted(component)}\n` : ""}version: ${version ? quoted(version) : '""'}

# The hosts that match every key.
select:
  ${select}

# Two hosts first, then an approval.
strategy:
  kind: canary
  canary:
    size: 2
    pick: stratified
    approval: true
  batch_percent: 25

failure:
  count: 3

health:
  wait: 10m
`;
}

const quoted = (word: string): string => stringify(word, { lineWidth: 0 }).trimEnd();
