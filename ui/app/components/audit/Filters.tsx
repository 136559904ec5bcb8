/** The filters of the audit trail: words, who, about what, when. */
import { ActionIcon, Checkbox, Select } from "@mantine/core";
import { IconSearch, IconX } from "@tabler/icons-react";
import { DraftInput } from "~/components/base/DraftInput";
import { useClock } from "~/components/base/Now";
import { NOUNS } from "~/util/audit/audit";
import type { AuditSearch } from "~/util/audit/auditSearch";
import { fromLocal, toLocal } from "~/util/audit/localTime";
import classes from "./Audit.module.css";

interface Props {
  search: AuditSearch;
  onChange: (change: AuditSearch) => void;
}

const HOUR = 3_600_000;
const SPANS = [
  { value: String(HOUR), label: "Last hour" },
  { value: String(24 * HOUR), label: "Last 24 hours" },
  { value: String(7 * 24 * HOUR), label: "Last 7 days" },
  { value: String(30 * 24 * HOUR), label: "Last 30 days" },
];

export function Filters({ search, onChange }: Props) {
  const now = useClock();
  // A link may name one verb, which is not among the nouns.
  const nouns = search.verb && !NOUNS.some((n) => n.value === search.verb) ? [{ value: search.verb, label: search.verb }, ...NOUNS] : NOUNS;
  return (
    <div className={classes.filters} role="search" aria-label="Filter the audit trail">
      <DraftInput
        label="Words"
        placeholder="Words in who, what, why"
        w={{ base: "100%", xs: 240 } as never}
        leftSection={<IconSearch size={14} aria-hidden />}
        value={search.q}
        onApply={(q) => onChange({ q })}
      />
      <DraftInput label="By" placeholder="By" w={140} value={search.actor} onApply={(actor) => onChange({ actor })} />
      <Select
        aria-label="About what"
        placeholder="About what"
        w={180}
        clearable
        searchable
        data={[...nouns]}
        value={search.verb ?? null}
        onChange={(verb) => onChange({ verb: verb ?? undefined })}
      />
      {search.since || search.until ? (
        <span className={classes.span}>
          <DraftInput label="From" type="datetime-local" value={toLocal(search.since)} onApply={(v) => onChange({ since: fromLocal(v) })} />
          <span aria-hidden>–</span>
          <DraftInput label="Until" type="datetime-local" value={toLocal(search.until)} onApply={(v) => onChange({ until: fromLocal(v) })} />
          <ActionIcon aria-label="Any time" onClick={() => onChange({ since: undefined, until: undefined })}>
            <IconX size={14} aria-hidden />
          </ActionIcon>
        </span>
      ) : (
        <Select
          aria-label="When"
          placeholder="Any time"
          w={140}
          data={SPANS}
          value={null}
          onChange={(ms) => ms && onChange({ since: new Date(now - Number(ms)).toISOString() })}
        />
      )}
      <Checkbox
        size="xs"
        label="Without the server’s steps"
        checked={search.people ?? false}
        onChange={(e) => onChange({ people: e.currentTarget.checked || undefined })}
      />
      {search.subject ? (
        <span className={classes.chip}>
          about <span className="mono">{search.subject}</span>
          <ActionIcon size="xs" aria-label="About anything" onClick={() => onChange({ subject: undefined })}>
            <IconX size={12} aria-hidden />
          </ActionIcon>
        </span>
      ) : null}
    </div>
  );
}
