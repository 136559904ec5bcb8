/** The versions on a host: what runs, what it can go back to, what it has staged, and what has failed there. */
import type { Agent } from "~/api/types";
import { type Fact, Facts, Section } from "~/components/base/Page";
import { When } from "~/components/base/Time";
import { exactWithZone } from "~/util/time";
import { sentence } from "~/util/words";
import classes from "./Side.module.css";

const Version = ({ of }: { of: string }) => <span className="mono">{of}</span>;

export function Versions({ agent: a }: { agent: Agent }) {
  const kept = a.upgrade?.rollbacks ?? [];
  const failed = a.failed_versions ?? [];
  const rows: Fact[] = [
    ["Runs", <Version key="r" of={a.agent.version || "unknown"} />],
    ["Wants", a.desired_version ? <Version key="w" of={a.desired_version} /> : ""],
    ["Last healthy", a.last_healthy_version ? <Version key="h" of={a.last_healthy_version} /> : "none yet"],
    [
      "Kept",
      kept.length > 0 ? (
        <span key="k">
          {kept.map((k) => (
            <span key={k.version} className={classes.item}>
              <Version of={k.version} />
              {k.valid_until ? (
                <span className={classes.sub} title={exactWithZone(k.valid_until)}>
                  until <When at={k.valid_until} />
                </span>
              ) : null}
            </span>
          ))}
        </span>
      ) : a.rollback?.reason ? (
        sentence(a.rollback.reason)
      ) : (
        "none"
      ),
    ],
    ...(a.staged_versions ? [["Staged", a.staged_versions.length > 0 ? <Version key="s" of={a.staged_versions.join(", ")} /> : "none"] as Fact] : []),
    ...(failed.length > 0
      ? [
          [
            "Failed here",
            <span key="f">
              {failed.map((f) => (
                <span key={f.version} className={classes.item} data-bad>
                  <Version of={f.version} />
                  <span className={classes.sub}>
                    <When at={f.at} />
                    {f.reason ? `: ${sentence(f.reason)}` : ""}
                  </span>
                </span>
              ))}
            </span>,
          ] as Fact,
        ]
      : []),
  ];
  return (
    <Section title="Versions on the host" plain>
      <Facts rows={rows} />
    </Section>
  );
}
