/** The search of the audit page, as in its address. */
import type { TrailFilter } from "~/api/overview";
import { compact, pageOf, textOf, timeOf } from "~/util/searchParts";

export interface AuditSearch extends TrailFilter {
  page?: number;
}

/** parseAuditSearch drops unknown values, so that old links still open. */
export const parseAuditSearch = (raw: Record<string, unknown>): AuditSearch =>
  compact({
    actor: textOf(raw.actor),
    people: raw.people === true || undefined,
    verb: textOf(raw.verb),
    subject: textOf(raw.subject),
    q: textOf(raw.q),
    since: timeOf(raw.since),
    until: timeOf(raw.until),
    page: pageOf(raw.page),
  });
