/** The search of an agent's page, as in its address. */
import { compact, textOf, timeOf } from "~/util/searchParts";

export interface AgentSearch {
  /** Whose timeline: a component, or "agent" for the agent itself; absent: everything. */
  component?: string;
  /** The entry of the timeline that is open. */
  entry?: string;
  /** The component that "Why" is about; absent: the agent itself. */
  why?: string;
  /** The time that "Why" is about; absent: now. */
  at?: string;
}

/** parseAgentSearch drops unknown values, so that old links still open. */
export function parseAgentSearch(raw: Record<string, unknown>): AgentSearch {
  return compact({ component: textOf(raw.component), entry: textOf(raw.entry), why: textOf(raw.why), at: timeOf(raw.at) });
}
