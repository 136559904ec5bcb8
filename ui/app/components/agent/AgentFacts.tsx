/** The facts of an agent and its host. */
import type { Agent } from "~/api/types";
import { CopyIcon } from "~/components/base/CopyBlock";
import { type Fact, Facts, Section } from "~/components/base/Page";
import { TextLink } from "~/components/base/TextLink";
import { Ago, Exact } from "~/components/base/Time";
import { archOf, isUnprivileged, osOf, osVersionOf } from "~/util/agents/facts";
import { sentence } from "~/util/words";
import classes from "./Side.module.css";

export function AgentFacts({ agent: a, policy }: { agent: Agent; policy: string }) {
  const rows: Fact[] = [
    [
      "Policy",
      <span key="p">
        <TextLink to="/policies/$policyId" params={{ policyId: a.policy_id }} inherit underline="always">
          {policy}
        </TextLink>
        {a.policy_revision ? `, revision ${a.policy_revision}` : ", not applied yet"}
      </span>,
    ],
    ["Site", a.site],
    ["System", [osOf(a), osVersionOf(a)].filter(Boolean).join(" ")],
    ["Architecture", archOf(a)],
    ["Rights", isUnprivileged(a) ? "without root's rights" : "root"],
    ["Last check-in", <Ago key="c" at={a.last_checkin} />],
    ...(a.last_checkin_message && a.last_checkin_message !== "Running" ? [["Message", sentence(a.last_checkin_message)] as Fact] : []),
    ["Enrolled", <Exact key="e" at={a.enrolled_at} />],
    ...(a.unenrolled_at ? [["Unenrolled", <Exact key="u" at={a.unenrolled_at} />] as Fact] : []),
    ...(a.unenrolled_reason ? [["Because", sentence(a.unenrolled_reason)] as Fact] : []),
    [
      "Agent id",
      <span key="i" className={classes.id}>
        <span className="mono">{a.id}</span>
        <CopyIcon text={a.id} label="Copy the agent id" />
      </span>,
    ],
  ];
  return (
    <Section title="Facts" plain>
      <Facts rows={rows} />
    </Section>
  );
}
