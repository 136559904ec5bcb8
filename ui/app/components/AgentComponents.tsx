import { Stack } from "@mantine/core";
import { IconAlertTriangle, IconArrowBackUp, IconCircleArrowUp, IconCircleCheck, IconCircleMinus, IconLoader2, type Icon } from "@tabler/icons-react";
import { useState } from "react";
import type { Agent, AgentComponent } from "~/api/types";
import { keptOf, whyNotGoBackComponent, whyNotUpgradeComponent } from "~/util/component";
import { componentPhaseOf, type Phase } from "~/util/phase";
import { sentence } from "~/util/words";
import classes from "./AgentComponents.module.css";
import { Empty } from "./Blocks";
import { Callout } from "./Callout";
import { Ago, useClock } from "./Now";
import { ReasonButton } from "./ReasonButton";
import { TextLink } from "./TextLink";
import { UpgradeDialog } from "./UpgradeDialog";
import { PhaseLine } from "./VersionCell";

/** A command for a component; back has the versions to go back to. */
interface Asked {
  component: string;
  back?: readonly string[];
}

/** What an agent runs. Components of Muster, which have names, are upgraded here; others are only shown. */
export function AgentComponents({ agent }: { agent: Agent }) {
  const [asked, setAsked] = useState<Asked | null>(null);
  if (agent.components.length === 0) return <Empty title="No components">This agent runs no workloads.</Empty>;
  return (
    <>
      <ul className={classes.list} aria-label="Components">
        {agent.components.map((c) => <Item key={c.id} agent={agent} component={c} onAsk={setAsked} />)}
      </ul>
      {asked ? <UpgradeDialog chosen={[agent]} {...asked} onClose={() => setAsked(null)} /> : null}
    </>
  );
}

function Item({ agent, component: c, onAsk }: { agent: Agent; component: AgentComponent; onAsk: (asked: Asked) => void }) {
  const now = useClock();
  const name = c.name ?? c.id;
  return (
    <li className={classes.item} aria-label={name}>
      <div className={classes.head}>
        <div className={classes.title}><b>{name}</b> <span className={classes.sub}>{c.runtime ?? c.type}</span></div>
        <Health status={c.status} />
      </div>
      {c.message ? <div className={classes.message}>{sentence(c.message)}</div> : null}
      {c.name ? (
        <>
          <Versions component={c} />
          <Upgrade component={c} phase={componentPhaseOf(agent, c, now)} />
          {c.rollout ? (
            <div className={classes.line}>
              Held by the rollout <TextLink to="/rollouts/$rolloutId" params={{ rolloutId: c.rollout.id }} inherit fw={600} underline="always">{c.rollout.name}</TextLink>: until it ends, only the rollout can upgrade it.
            </div>
          ) : null}
          <div className={classes.actions}>
            <ReasonButton
              size="compact-sm" variant="default" leftSection={<IconCircleArrowUp size={14} aria-hidden />} aria-label={`${c.version ? "Upgrade" : "Install"} ${name}`}
              reason={whyNotUpgradeComponent(agent, c)} onClick={() => onAsk({ component: name })}
            >
              {c.version ? "Upgrade…" : "Install…"}
            </ReasonButton>
            <ReasonButton
              size="compact-sm" variant="default" leftSection={<IconArrowBackUp size={14} aria-hidden />} aria-label={`Roll back ${name}`}
              reason={whyNotGoBackComponent(agent, c)} onClick={() => onAsk({ component: name, back: keptOf(c) })}
            >
              Roll back…
            </ReasonButton>
          </div>
        </>
      ) : c.units?.length ? ( // the one unit of a component of Muster only repeats its state
        <ul className={classes.units} aria-label={`Inputs and outputs of ${name}`}>
          {c.units.map((u) => (
            <li key={`${u.type} ${u.id}`}>
              <div className={classes.head}>
                <div className={classes.title}>{u.id} <span className={classes.sub}>{u.type}</span></div>
                <Health status={u.status} />
              </div>
              {u.message ? <div className={classes.message}>{sentence(u.message)}</div> : null}
            </li>
          ))}
        </ul>
      ) : null}
    </li>
  );
}

function Versions({ component: c }: { component: AgentComponent }) {
  const facts: [string, React.ReactNode][] = [
    ["runs", c.version ? <><span className="mono">{c.version}</span>{c.since ? <> since <Ago at={c.since} /></> : null}</> : "no version yet"],
    ["desired", c.desired_version ? <><span className="mono">{c.desired_version}</span>{c.desired_version === c.version ? "" : ", not yet"}</> : "no version yet"],
    ["last healthy", c.last_healthy_version ? <span className="mono">{c.last_healthy_version}</span> : "no version yet"],
  ];
  return (
    <dl className={classes.versions}>
      {facts.map(([word, value]) => <div key={word}><dt>{word}</dt> <dd>{value}</dd></div>)}
      {c.restarts ? <div><dt>restarts</dt> <dd>{c.restarts.toLocaleString()}</dd></div> : null}
    </dl>
  );
}

function Upgrade({ component: c, phase }: { component: AgentComponent; phase: Phase }) {
  const doing = c.upgrade_details?.metadata?.phase;
  switch (phase.kind) {
    case "none":
      return null;
    case "running":
    case "scheduled":
      return (
        <div className={classes.phase}>
          <div className={classes.head}>
            <div className={classes.title}>Upgrade{phase.target ? <> to <span className="mono">{phase.target}</span></> : null}</div>
            {phase.kind === "running" && doing ? <span className={`mono ${classes.sub}`}>{doing}</span> : null}
          </div>
          <PhaseLine phase={phase} />
          {/* Without the percentage: a screen reader should announce phases, not every step of a download. */}
          <div className="sr-only" aria-live="polite">{phase.text.replace(/ \d+ %.*$/, "")}</div>
        </div>
      );
    case "rolled_back":
    case "failed": {
      const failed = phase.kind === "failed";
      const to = phase.target || "the new version";
      return (
        <Callout kind={failed ? "error" : "warning"} icon={failed ? undefined : <IconArrowBackUp size={18} aria-hidden />} title={failed ? `Its upgrade to ${to} failed` : `Rolled back from ${to}`}>
          <Stack gap={2}>
            <span>{phase.reason ? sentence(phase.reason) : "The agent reported no reason."}</span>
            {c.upgrade_details?.metadata?.reason_code ? <span>Reason code <span className="mono">{c.upgrade_details.metadata.reason_code}</span></span> : null}
          </Stack>
        </Callout>
      );
    }
  }
}

/** A shape for each tone, since many people cannot tell the colours apart. The word is the agent's own. */
const tones: Record<string, [tone: string, shape: Icon]> = {
  HEALTHY: ["good", IconCircleCheck],
  DEGRADED: ["warn", IconAlertTriangle],
  FAILED: ["bad", IconAlertTriangle],
  STARTING: ["warn", IconLoader2],
  CONFIGURING: ["warn", IconLoader2],
  STOPPING: ["warn", IconLoader2],
};

function Health({ status }: { status: string }) {
  const [tone, Shape] = tones[status.toUpperCase()] ?? ["quiet", IconCircleMinus];
  return <span className={classes.health} data-health={tone}><Shape size={14} aria-hidden />{status || "UNKNOWN"}</span>;
}
