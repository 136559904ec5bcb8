/** The hosts of an action with its outcome on each, page by page; also those that have got a newer order or are gone. */
import { Select } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { ACTION_HOSTS_PER_PAGE, actionHostsQuery } from "~/api/actions";
import type { ActionHost, ActionHostState, ActionStatus } from "~/api/types";
import { Badge } from "~/components/base/Badge";
import { LoadError, Loading } from "~/components/base/Page";
import { Pager } from "~/components/base/Pager";
import { TextLink } from "~/components/base/TextLink";
import { When } from "~/components/base/Time";
import { hostLook, latestQuery, partsOf } from "~/util/activity/action";
import type { ActivitySearch } from "~/util/activity/activitySearch";
import { sentence } from "~/util/words";
import classes from "./Activity.module.css";

interface Props {
  action: ActionStatus;
  state?: ActionHostState;
  page: number;
  onShow: (change: Pick<ActivitySearch, "state" | "hosts">) => void;
}

export function ActionHosts({ action: a, state, page, onShow }: Props) {
  const list = useQuery(actionHostsQuery(a.actionId, state, page));
  const parts = partsOf(a);
  const shown = state && !parts.some((p) => p.state === state) ? [...parts, { state, ...hostLook(state), count: 0 }] : parts;
  const rows = list.data?.items ?? [];
  const kuery = state === "stopped" ? undefined : latestQuery(a, state);
  return (
    <section className={classes.hosts} aria-label="Hosts">
      <header>
        <h2>Hosts</h2>
        {kuery ? (
          <TextLink to="/agents" search={{ kuery }} size="sm" underline="always">
            Under Agents, those without a newer order
          </TextLink>
        ) : null}
        <Select
          size="xs"
          w={200}
          ml="auto"
          aria-label="How it stands on them"
          placeholder="All states"
          clearable
          value={state ?? null}
          data={shown.map((p) => ({ value: p.state, label: `${p.word} (${p.count.toLocaleString()})` }))}
          onChange={(s) => onShow({ state: (s as ActionHostState | null) ?? undefined, hosts: undefined })}
        />
      </header>
      {list.isError ? <LoadError what="The hosts of this action" error={list.error} onRetry={() => void list.refetch()} /> : null}
      {list.isPending ? <Loading rows={3} /> : null}
      {list.data && rows.length === 0 ? (
        <p className={classes.none}>{state ? `On no host it is ${hostLook(state).word.toLowerCase()} now.` : "It has no hosts."}</p>
      ) : null}
      {rows.length > 0 ? (
        <>
          <table aria-label="Hosts of this action" aria-busy={list.isPlaceholderData || undefined}>
            <thead>
              <tr>
                <th>Host</th>
                <th>State</th>
                <th data-wide>Since</th>
                <th data-wide>Why</th>
              </tr>
            </thead>
            <tbody>
              {rows.map((h) => (
                <Row key={h.agentId} host={h} />
              ))}
            </tbody>
          </table>
          <Pager
            page={page}
            perPage={ACTION_HOSTS_PER_PAGE}
            total={list.data?.total ?? 0}
            of="hosts"
            onPage={(p) => onShow({ state, hosts: p > 1 ? p : undefined })}
          />
        </>
      ) : null}
    </section>
  );
}

function Row({ host: h }: { host: ActionHost }) {
  const { word, tone } = hostLook(h.state);
  const why = h.text ?? h.reason?.text;
  return (
    <tr>
      <td>
        <TextLink to="/agents/$agentId" params={{ agentId: h.agentId }} inherit underline="always">
          {h.hostname || h.agentId}
        </TextLink>
      </td>
      <td>
        <Badge tone={tone}>{word}</Badge>
      </td>
      <td data-wide>{h.since ? <When at={h.since} /> : "–"}</td>
      <td data-wide title={why}>
        {why ? sentence(why) : "–"}
      </td>
    </tr>
  );
}
