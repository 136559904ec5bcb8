/** One entry of the audit trail in full: who, why, on what, and what changed. */
import { useQuery } from "@tanstack/react-query";
import { trailQuery } from "~/api/overview";
import type { AuditEntry } from "~/api/types";
import { CopyIcon } from "~/components/base/CopyBlock";
import { type Fact, Facts } from "~/components/base/Page";
import { TextLink } from "~/components/base/TextLink";
import { Exact } from "~/components/base/Time";
import { type Change, changesOf, dataOf, recordedChanges } from "~/util/audit/audit";
import { closed } from "~/util/words";
import classes from "./Audit.module.css";
import { SubjectLink } from "./SubjectLink";

export function EntryDetails({ entry: e }: { entry: AuditEntry }) {
  const rows: Fact[] = [
    ["At", <Exact key="a" at={e.at} />],
    [
      "By",
      <TextLink key="b" to="/audit" search={{ actor: e.actor }} inherit underline="always">
        {e.actor}
      </TextLink>,
    ],
    [
      "Verb",
      <TextLink key="v" to="/audit" search={{ verb: e.verb }} inherit underline="always" className="mono">
        {e.verb}
      </TextLink>,
    ],
    [
      "Subject",
      <span key="s" className={classes.subject}>
        <span className="mono">{e.subject}</span>
        <CopyIcon text={e.subject} label="Copy the subject" />
        <TextLink to="/audit" search={{ subject: e.subject }} inherit underline="always">
          All entries about it
        </TextLink>
        <SubjectLink entry={e}>Open it</SubjectLink>
      </span>,
    ],
    ...(e.why ? [["Reason", closed(e.why)] as Fact] : []),
  ];
  return (
    <div className={classes.details}>
      <Facts rows={rows} />
      {e.verb === "policy.update" && e.data ? (
        <PolicyChange entry={e} />
      ) : (
        <>
          <Changes changes={recordedChanges(e)} />
          <Data entry={e} />
        </>
      )}
    </div>
  );
}

function Data({ entry }: { entry: AuditEntry }) {
  const rows = dataOf(entry);
  if (rows.length === 0) return null;
  return (
    <table className={classes.data} aria-label="What was recorded">
      <tbody>
        {rows.map(([name, text]) => (
          <tr key={name}>
            <th scope="row">{name}</th>
            <td className="mono">{text}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** The entry has the policy as it became; the one before has it as it was. */
function PolicyChange({ entry: e }: { entry: AuditEntry }) {
  const trail = useQuery({
    ...trailQuery({ subject: e.subject, verb: "policy", until: e.at }, 1, 2),
    staleTime: Infinity,
    refetchInterval: false,
    placeholderData: undefined,
  });
  const before = trail.data?.items.find((x) => x.id !== e.id)?.data;
  const recorded = recordedChanges(e);
  if (!before || !e.data)
    return (
      <>
        <Changes changes={recorded} />
        <Data entry={e} />
      </>
    );
  const compared = changesOf(before, e.data);
  return <Changes changes={[...compared, ...recorded.filter((r) => !compared.some((c) => c.field === r.field))]} />;
}

function Changes({ changes }: { changes: readonly Change[] }) {
  if (changes.length === 0) return null;
  return (
    <table className={classes.data} aria-label="What changed">
      <thead>
        <tr>
          <th scope="col">Setting</th>
          <th scope="col">Before</th>
          <th scope="col">After</th>
        </tr>
      </thead>
      <tbody>
        {changes.map((c) => (
          <tr key={c.field}>
            <th scope="row">{c.field}</th>
            {c.hidden ? (
              <td colSpan={2} className={classes.none}>
                changed; the trail does not show its values
              </td>
            ) : (
              <>
                <td className={`mono ${classes.before}`}>{c.before ?? <span className={classes.none}>not set</span>}</td>
                <td className={`mono ${classes.after}`}>{c.after ?? <span className={classes.none}>not set</span>}</td>
              </>
            )}
          </tr>
        ))}
      </tbody>
    </table>
  );
}
