import { Button, Checkbox, Menu } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { IconChevronDown, IconFilter } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { agentTotalQuery, facetsQuery } from "~/api/agents";
import { messageOf } from "~/api/client";
import type { Hosts } from "~/util/plan/planForm";
import { plural } from "~/util/words";
import { TextLink } from "../base/TextLink";
import { KqlInput } from "../query/KqlInput";
import classes from "./Plan.module.css";

interface Props {
  hosts: Hosts;
  error?: string;
  disabled?: boolean;
  onChange: (hosts: Hosts) => void;
}

/** How long typing must pause before the server counts. */
const TYPING_PAUSE_MS = 250;

/** Rollouts select inactive hosts too, and no unenrolled ones. */
const ENROLLED = "not status: unenrolled";

/** Which hosts a plan is for. The whole fleet is chosen by a box of its own, with its number, and never by leaving something empty. */
export function HostsField({ hosts, error, disabled, onChange }: Props) {
  const fleet = useQuery(agentTotalQuery(ENROLLED, true));
  const all = hosts.by === "all";
  return (
    <div className={classes.hosts}>
      {hosts.by === "agents" || hosts.by === "other" ? (
        <div className={classes.chosen}>
          <div>
            {hosts.by === "agents" ? (
              <>
                <b>{plural(hosts.agents.length, "host")}</b> that you selected
              </>
            ) : (
              <>Chosen in the YAML by {hosts.text}</>
            )}
          </div>
          <Button variant="default" disabled={disabled} onClick={() => onChange({ by: "query", kuery: "" })}>
            Choose by a query
          </Button>
        </div>
      ) : (
        <QueryField
          kuery={hosts.by === "query" ? hosts.kuery : ""}
          disabled={disabled || all}
          error={error}
          onChange={(kuery) => onChange({ by: "query", kuery })}
        />
      )}
      {hosts.by !== "query" && error ? <div className={classes.error}>{error}</div> : null}
      <Checkbox
        label={fleet.data === undefined ? "Choose the whole fleet" : `Choose the whole fleet: ${plural(fleet.data, "host")}`}
        checked={all}
        disabled={disabled}
        onChange={(e) => onChange(e.currentTarget.checked ? { by: "all" } : { by: "query", kuery: "" })}
      />
    </div>
  );
}

function QueryField({ kuery, disabled, error, onChange }: { kuery: string; disabled?: boolean; error?: string; onChange: (kuery: string) => void }) {
  const [asked] = useDebouncedValue(kuery.trim(), TYPING_PAUSE_MS);
  const count = useQuery({ ...agentTotalQuery(`(${asked}) and ${ENROLLED}`, true), enabled: asked !== "" });
  // A query that is being written is mostly invalid, and its suggestions lie over the error.
  const [writing, setWriting] = useState(false);
  const fault = writing ? undefined : (error ?? (asked !== "" && count.isError ? messageOf(count.error).split("\n")[0] : undefined));
  return (
    <div>
      <KqlInput
        label="Query"
        placeholder="policy: web and site: (fra or ams)"
        disabled={disabled}
        text={kuery}
        error={fault}
        onText={onChange}
        onFocus={() => setWriting(true)}
        onLeave={() => setWriting(false)}
      />
      <div className={classes.count}>
        <span role="status">
          {disabled ? (
            ""
          ) : asked === "" ? (
            <span className={classes.hint}>Nothing is chosen yet. Write a query in KQL, or narrow the fleet step by step.</span>
          ) : count.data !== undefined && !count.isError ? (
            <>
              <b>{plural(count.data, "host")}</b> {count.data === 1 ? "matches" : "match"}
              {count.data > 0 ? (
                <>
                  {" "}
                  ·{" "}
                  <TextLink to="/agents" search={{ kuery: asked } as never} inherit underline="always">
                    Show them
                  </TextLink>
                </>
              ) : null}
            </>
          ) : (
            ""
          )}
        </span>
        {disabled ? null : <Narrow kuery={kuery} onChange={onChange} />}
      </div>
    </div>
  );
}

const fields: Record<string, string> = { policy: "Policy", version: "Version", site: "Site", tag: "Tag", os: "OS", health: "Health" };
/** A longer menu is not read. */
const VALUES = 8;

/** Adds a condition to the query, with the number of hosts that are left. */
function Narrow({ kuery, onChange }: { kuery: string; onChange: (kuery: string) => void }) {
  const facets = useQuery(facetsQuery(kuery.trim() === "" ? ENROLLED : `(${kuery.trim()}) and ${ENROLLED}`, true, Object.keys(fields).join(",")));
  const shown = (facets.data?.facets ?? []).filter((f) => fields[f.field] && f.values.length > 0);
  const add = (condition: string) => onChange(kuery.trim() === "" ? condition : `${/ or /i.test(kuery) ? `(${kuery.trim()})` : kuery.trim()} and ${condition}`);
  return (
    <span className={classes.narrowBar}>
      {shown.map((f) => (
        <Menu key={f.field} position="bottom-end" width={260}>
          <Menu.Target>
            <Button
              variant="subtle"
              color="gray"
              size="compact-sm"
              className={classes.narrow}
              leftSection={f === shown[0] ? <IconFilter size={12} aria-hidden /> : null}
              rightSection={<IconChevronDown size={12} aria-hidden />}
            >
              {fields[f.field]}
            </Button>
          </Menu.Target>
          <Menu.Dropdown>
            {f.values.slice(0, VALUES).map((v) => (
              <Menu.Item key={v.value} rightSection={<span className={classes.hint}>{v.count.toLocaleString()}</span>} onClick={() => add(v.kuery)}>
                {v.label ?? (v.value || "none")}
              </Menu.Item>
            ))}
          </Menu.Dropdown>
        </Menu>
      ))}
    </span>
  );
}
