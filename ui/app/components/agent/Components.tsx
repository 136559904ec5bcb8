/** What an agent runs. Components of Muster, which have names, are upgraded here; those of other agents are only shown. */
import { ActionIcon, Menu } from "@mantine/core";
import { IconDots } from "@tabler/icons-react";
import { useState } from "react";
import type { Agent, AgentComponent } from "~/api/types";
import { Badge, ProgressBadge } from "~/components/base/Badge";
import { Section } from "~/components/base/Page";
import { TextLink } from "~/components/base/TextLink";
import { When } from "~/components/base/Time";
import { UpgradeDialog } from "~/components/upgrade/UpgradeDialog";
import { componentTone, keptOf, statusWord } from "~/util/agent/component";
import { withoutIds } from "~/util/prose";
import { sentence } from "~/util/words";
import classes from "./Components.module.css";

/** A command for a component; back has the versions to go back to. */
interface Asked {
  component: string;
  back?: readonly string[];
}

export function Components({ agent }: { agent: Agent }) {
  const [asked, setAsked] = useState<Asked | null>(null);
  if (agent.components.length === 0)
    return (
      <Section title="Components" plain>
        <p className={classes.none}>This agent runs no components. Its policy names them.</p>
      </Section>
    );
  return (
    <Section title="Components" plain flush>
      <div className={classes.frame}>
        <table className={classes.table} aria-label="Components">
          <thead>
            <tr>
              <th>Component</th>
              <th>State</th>
              <th>Version</th>
              <th className={classes.wide}>Since</th>
              <th className={classes.wide}>Last healthy</th>
              <th>
                <span className="sr-only">Commands</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {agent.components.map((c) => (
              <Row key={c.id} component={c} onAsk={setAsked} />
            ))}
          </tbody>
        </table>
      </div>
      {asked ? <UpgradeDialog chosen={[agent]} {...asked} onClose={() => setAsked(null)} /> : null}
    </Section>
  );
}

function Row({ component: c, onAsk }: { component: AgentComponent; onAsk: (asked: Asked) => void }) {
  const name = c.name ?? c.id;
  const wants = c.desired_version && c.desired_version !== c.version ? c.desired_version : undefined;
  return (
    <tr aria-label={name}>
      <th scope="row">
        {name}
        <span className={classes.sub}>{c.runtime ?? c.type}</span>
      </th>
      <td>
        <Badge tone={componentTone(c.status)}>{statusWord(c.status)}</Badge>
        {c.message && c.message !== "Running" ? <span className={classes.sub}>{sentence(c.message)}</span> : null}
        {c.restarts ? (
          <span className={classes.sub}>
            {c.restarts.toLocaleString()} {c.restarts === 1 ? "restart" : "restarts"} without an order
          </span>
        ) : null}
        {c.name ? null : <Units component={c} />}
      </td>
      <td>
        {c.version ? <span className="mono">{c.version}</span> : c.name ? "not installed" : "–"}
        {wants ? (
          <span className={classes.sub}>
            wants <span className="mono">{wants}</span>
          </span>
        ) : null}
        {c.rollback_problems?.map((p) => (
          <span key={p.version} className={classes.sub}>
            kept <span className="mono">{p.version}</span>: {p.reason}
          </span>
        ))}
        <Upgrade component={c} />
      </td>
      <td className={classes.wide}>
        <When at={c.since} />
      </td>
      <td className={classes.wide}>{c.last_healthy_version ? <span className="mono">{c.last_healthy_version}</span> : "–"}</td>
      <td className={classes.end}>{c.name ? <Commands component={c} name={c.name} onAsk={onAsk} /> : null}</td>
    </tr>
  );
}

/** The upgrade of a component, unless it is committed. */
function Upgrade({ component: c }: { component: AgentComponent }) {
  const p = c.progress;
  return (
    <>
      {p && p.state !== "committed" ? (
        <span className={classes.progress}>
          <ProgressBadge progress={p} />
          {p.version !== c.desired_version ? (
            <>
              {" "}
              <span className="mono">{p.version}</span>
            </>
          ) : null}
        </span>
      ) : null}
      {p?.reason && p.state !== "committed" ? <span className={classes.sub}>{sentence(withoutIds(p.reason.text))}</span> : null}
      {c.rollout ? (
        <span className={classes.sub}>
          in the rollout{" "}
          <TextLink to="/rollouts/$rolloutId" params={{ rolloutId: c.rollout.id }} inherit underline="always">
            {c.rollout.name}
          </TextLink>
        </span>
      ) : null}
    </>
  );
}

function Units({ component: c }: { component: AgentComponent }) {
  if (!c.units?.length) return null;
  return (
    <ul className={classes.units} aria-label={`Inputs and outputs of ${c.id}`}>
      {c.units.map((u) => (
        <li key={`${u.type} ${u.id}`}>
          <Badge tone={componentTone(u.status)}>{statusWord(u.status)}</Badge> {u.type} {u.id}
          {u.message ? `: ${sentence(u.message)}` : ""}
        </li>
      ))}
    </ul>
  );
}

function Commands({ component: c, name, onAsk }: { component: AgentComponent; name: string; onAsk: (asked: Asked) => void }) {
  const word = (command: string) => (command === "rollback" ? "Roll back…" : c.version ? "Upgrade…" : "Install…");
  return (
    <Menu position="bottom-end" width={280} withinPortal>
      <Menu.Target>
        <ActionIcon aria-label={`Commands for ${name}`}>
          <IconDots size={16} aria-hidden />
        </ActionIcon>
      </Menu.Target>
      <Menu.Dropdown>
        {(c.commands ?? []).map((x) => (
          <Menu.Item
            key={x.name}
            className={classes.command}
            data-refused={x.allowed ? undefined : true}
            closeMenuOnClick={x.allowed}
            onClick={() => x.allowed && onAsk({ component: name, back: x.name === "rollback" ? keptOf(c) : undefined })}
          >
            {word(x.name)}
            {x.allowed ? null : (
              <span className={classes.why}>
                <span className="sr-only">Not possible now: </span>
                {x.reason === undefined ? null : withoutIds(x.reason)}
              </span>
            )}
          </Menu.Item>
        ))}
      </Menu.Dropdown>
    </Menu>
  );
}
