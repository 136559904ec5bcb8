/** What a plan would do, of which hosts, and when. */
import { Button } from "@mantine/core";
import { IconAlertTriangle } from "@tabler/icons-react";
import type { ReactNode } from "react";
import type { Preview, PreviewCause } from "~/api/types";
import { causesOf, segmentsOf, willOf, wontOf } from "~/util/plan/planPreview";
import { bytesOf } from "~/util/rollout/preview";
import { percent } from "~/util/rollout/rolloutCounts";
import { durationText } from "~/util/rollout/rolloutText";
import { exactWithZone } from "~/util/time";
import { plural, sentence, size } from "~/util/words";
import classes from "./PlanPreview.module.css";

interface Props {
  preview: Preview;
  /** Includes what the hosts refuse by themselves. Undefined: the plan cannot be changed here. */
  onForce?: (force: boolean) => void;
  forced?: boolean;
  /** More facts in the line below the numbers. */
  more?: ReactNode;
}

export function PlanPreview({ preview: p, onForce, forced, more }: Props) {
  const causes = causesOf(p);
  const warnings = [...(p.refusals ?? []).map((r) => `a start would be refused: ${r.text}`), ...p.warnings];
  return (
    <div>
      <div className={classes.numbers} role="status">
        <Figure n={willOf(p)} what={willOf(p) === 1 ? "host would be upgraded" : "hosts would be upgraded"} />
        <Figure n={wontOf(p)} what="left out" />
        <Figure n={p.batches.length} what={p.batches.length === 1 ? "batch" : "batches"} />
        {willOf(p) > 0 ? (
          <div className={classes.number}>
            <b>{durationText(p.estimate)}</b>
            <span>about, at least {durationText(p.at_least)}</span>
          </div>
        ) : null}
      </div>
      {warnings.length > 0 ? (
        <ul className={classes.warnings} aria-label="Warnings">
          {warnings.map((w) => (
            <li key={w}>
              <IconAlertTriangle size={16} aria-hidden />
              <span>{sentence(w)}</span>
            </li>
          ))}
        </ul>
      ) : null}
      <div className={classes.columns} data-two={p.batches.length > 0 && (causes.length > 0 || forced) ? true : undefined}>
        <div>
          {p.batches.length > 0 ? <Batches preview={p} /> : null}
          <div className={classes.facts}>
            {willOf(p) > 0 ? (
              <span>
                To download <b>{size(bytesOf(p))}</b>
                {p.sites.length > 1 ? ` at ${plural(p.sites.length, "site")}` : ""}
              </span>
            ) : null}
            {p.coverage && p.coverage.cells > 0 ? (
              <span>
                Canaries stand for{" "}
                <b>
                  {p.coverage.covered.toLocaleString()} of {p.coverage.cells.toLocaleString()}
                </b>{" "}
                combinations of {p.coverage.over.join(", ")}
              </span>
            ) : null}
            {p.staging && p.staging.load > 0 ? (
              <span>
                Staged first on <b>{plural(p.staging.load, "host")}</b> in about {durationText(p.staging.estimate)}
              </span>
            ) : null}
            {p.server_defaults && p.server_defaults.length > 0 ? <span>By the server's configuration: {p.server_defaults.join(", ")}</span> : null}
            {more}
          </div>
          {p.exposure && p.exposure.needed_hours > 0 ? <Exposure preview={p} /> : null}
        </div>
        {causes.length > 0 || forced ? <Causes causes={causes} onForce={onForce} forced={forced} /> : null}
      </div>
    </div>
  );
}

function Figure({ n, what }: { n: number; what: string }) {
  return (
    <div className={classes.number} data-zero={n === 0 || undefined}>
      <b>{n.toLocaleString()}</b>
      <span>{what}</span>
    </div>
  );
}

/** The batches as parts of a bar, with a table behind it. */
function Batches({ preview: p }: { preview: Preview }) {
  const canary = p.batches.some((b) => b.kind === "canary");
  const rings = p.batches.some((b) => b.ring);
  return (
    <div>
      <h3 className={classes.title}>Batches</h3>
      <div className={classes.bar} aria-hidden>
        {segmentsOf(p.batches).map((s) => (
          <span
            key={s.from}
            data-kind={s.kind}
            style={{ flexGrow: s.size }}
            title={`${s.from === s.to ? `Batch ${s.from + 1}` : `Batches ${s.from + 1} to ${s.to + 1}`}: ${plural(s.size, "host")}`}
          >
            {s.size / willOf(p) > 0.05 ? s.size.toLocaleString() : ""}
          </span>
        ))}
      </div>
      <div className={classes.facts}>
        {canary ? (
          <span>
            <i className={classes.key} data-kind="canary" aria-hidden />
            Canaries
          </span>
        ) : null}
        <span>
          <i className={classes.key} aria-hidden />
          {canary ? "The other batches" : "Batches"}
        </span>
      </div>
      <details className={classes.times}>
        <summary>Sizes and times of the batches</summary>
        <div className={classes.scroll} tabIndex={0} role="region" aria-label="Sizes and times of the batches">
          <table className={`${classes.table} ${classes.batches}`}>
            <thead>
              <tr>
                <th>Batch</th>
                {rings ? <th>Ring</th> : null}
                <th>Hosts</th>
                <th>Offline</th>
                <th>Starts about</th>
                <th>Ends about</th>
                <th>Fleet after it</th>
              </tr>
            </thead>
            <tbody>
              {p.batches.map((b) => (
                <tr key={b.index}>
                  <td>
                    {(b.index + 1).toLocaleString()}
                    {b.kind === "canary" ? " canaries" : ""}
                  </td>
                  {rings ? <td>{b.ring}</td> : null}
                  <td>{b.size.toLocaleString()}</td>
                  <td>{b.offline.toLocaleString()}</td>
                  <td>
                    <About at={b.start_at} />
                  </td>
                  <td>
                    <About at={b.end_at} />
                  </td>
                  <td>{percent(Math.round(b.share * 1000) / 10)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </details>
    </div>
  );
}

function About({ at }: { at: string }) {
  return (
    <time dateTime={at} title={exactWithZone(at)}>
      {new Date(at).toLocaleString(undefined, { weekday: "short", hour: "2-digit", minute: "2-digit" })}
    </time>
  );
}

function Causes({ causes, onForce, forced }: { causes: PreviewCause[]; onForce?: (force: boolean) => void; forced?: boolean }) {
  return (
    <div>
      <h3 className={classes.title}>Left out, and what to know</h3>
      <table className={classes.table}>
        <thead>
          <tr>
            <th>Hosts</th>
            <th>Why</th>
            <th>
              <span className="sr-only">Choice</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {causes.map((c) => (
            <tr key={`${c.code} ${c.text} ${c.will}`}>
              <td>{c.count.toLocaleString()}</td>
              <td>
                {c.will ? "" : "Left out: "}
                {c.will ? sentence(c.text) : lowerFirst(sentence(c.text))}
                {c.sample?.length ? (
                  <div className={classes.sample}>
                    {c.sample.join(", ")}
                    {c.count > c.sample.length ? " …" : ""}
                  </div>
                ) : null}
              </td>
              <td>
                {c.choice === "force" && onForce && !forced ? (
                  <Button variant="default" size="compact-sm" onClick={() => onForce(true)}>
                    Include anyway
                  </Button>
                ) : null}
              </td>
            </tr>
          ))}
          {forced ? (
            <tr>
              <td />
              <td>Hosts that run a later version, or on which this one failed before, are included.</td>
              <td>
                {onForce ? (
                  <Button variant="default" size="compact-sm" onClick={() => onForce(false)}>
                    Leave them out
                  </Button>
                ) : null}
              </td>
            </tr>
          ) : null}
        </tbody>
      </table>
    </div>
  );
}

/** The server's sentences begin with "It" or "The agent", or with a name, which keeps its spelling. */
const lowerFirst = (text: string): string => (/^(It|The|Its|Another|A|An) /.test(text) ? text[0]!.toLowerCase() + text.slice(1) : text);

/** How much of the fleet may run a version that has not proved itself yet. */
function Exposure({ preview: p }: { preview: Preview }) {
  const e = p.exposure!;
  const wanted = Math.min(e.exposed + willOf(p), e.fleet);
  const over = wanted > e.limit && e.healthy_hours < e.needed_hours;
  return (
    <div className={classes.gauges}>
      <div className={classes.gaugeHead}>
        <span>Guard rail: exposure of {e.version}</span>
        <b>
          {wanted.toLocaleString()} of at most {e.limit.toLocaleString()}
        </b>
      </div>
      <div className={classes.gauge} data-over={over || undefined} aria-hidden>
        <span style={{ width: `${Math.min(100, (100 * wanted) / Math.max(1, e.limit))}%` }} />
      </div>
      <div className={classes.note}>
        {over
          ? `At most ${plural(e.limit, "host")} may run the version until it has been healthy for ${e.needed_hours.toLocaleString()} agent-hours; the rollout waits there.`
          : `${plural(e.exposed, "host runs", "hosts run")} it now.`}{" "}
        So far it has {e.healthy_hours.toFixed(1)} of {e.needed_hours.toLocaleString()} agent-hours.
      </div>
    </div>
  );
}
