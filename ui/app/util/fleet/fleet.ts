/**
 * Fleets in words: conditions and versions, why nothing rolls out and what to do about it, and the
 * questions of commands. The server decides; its reasons of conditions are in server/rollout/spec/reconcile.
 */
import type { Command, Fleet, FleetCondition, FleetDiff, FleetPreview } from "~/api/types";
import { shortHash } from "~/util/rollout/preview";
import { isActive } from "~/util/rollout/rollout";
import { durationText } from "~/util/rollout/rolloutText";
import { relative } from "~/util/time";
import { plural, sentence } from "~/util/words";

export type ConditionType = FleetCondition["type"];

export const CONDITION_TYPES: readonly ConditionType[] = ["Ready", "Progressing", "Promoting", "Degraded", "Stalled"];

/** Starts a rollout whenever its value changes, without a change of the spec. */
export const FORCE_ROLLOUT = "muster.dev/force-rollout";

export const conditionOf = (f: Fleet, type: ConditionType): FleetCondition | undefined => f.status?.conditions?.find((c) => c.type === type);
const holds = (f: Fleet, type: ConditionType): boolean => conditionOf(f, type)?.status === "True";

/** The conditions besides Ready that hold, in their order. */
export const holding = (f: Fleet): ConditionType[] => CONDITION_TYPES.filter((t) => t !== "Ready" && holds(f, t));

/** isObserved reports whether the status is about the newest spec. */
export const isObserved = (f: Fleet): boolean => (f.status?.observedGeneration ?? 0) >= (f.metadata.generation ?? 0);

export interface VersionCount {
  version: string;
  agents: number;
  /** It is the version of the spec. */
  desired: boolean;
}

export interface PartVersions {
  /** agent, or the name of a component. */
  part: string;
  /** The version of the spec, or its manifest. */
  wants: string;
  versions: VersionCount[];
  agents: number;
  /** How many agents run the desired version; undefined if a manifest names it. */
  there?: number;
}

/** partsOf returns the versions that the agents run of each part of the spec, the most frequent first. */
export function partsOf(f: Fleet): PartVersions[] {
  const { agent, components = [] } = f.spec;
  const parts = [...(agent ? [{ name: "agent", ...agent }] : []), ...components];
  return parts.map(({ name, version, manifest }) => {
    const versions = Object.entries(f.status?.versions?.[name] ?? {})
      .map(([v, agents]) => ({ version: v, agents, desired: v !== "" && v === version }))
      .sort((a, b) => b.agents - a.agents || a.version.localeCompare(b.version));
    return {
      part: name,
      wants: version ?? (manifest ? `${manifest.profile}/${manifest.id}` : ""),
      versions,
      agents: versions.reduce((n, v) => n + v.agents, 0),
      there: version === undefined ? undefined : (versions.find((v) => v.desired)?.agents ?? 0),
    };
  });
}

export interface Obstacle {
  text: string;
  /** What to do about it. */
  next: string;
  /** Where to do it. */
  to?: "rollout" | "servers";
}

const shown = (f: Fleet) => {
  const r = f.status?.rollout;
  return r ? `its rollout of ${[r.component || "the agents", r.version && `to ${r.version}`].filter(Boolean).join(" ")}` : "its rollout";
};

/** obstaclesOf says why a fleet is not rolling out, what weighs most first; none if it is, or is rolled out. */
export function obstaclesOf(f: Fleet, now: number): Obstacle[] {
  const s = f.status;
  const r = s?.rollout;
  const active = !!r && isActive(r.state);
  const stalled = conditionOf(f, "Stalled");
  const why = stalled?.status === "True" ? stalled.reason : "";
  const out: Obstacle[] = [];
  if (s?.suspended) {
    out.push({
      text: `${s.suspended.by} took its hosts over ${relative(s.suspended.at, now)}${s.suspended.why ? `: “${s.suspended.why}”` : ""}. Muster leaves them alone.`,
      next: "Resume it, or change its spec.",
    });
  }
  if (!isObserved(f))
    out.push({
      text: "The server has not acted on the newest spec yet.",
      next: "It does so within seconds. If it does not, see whether a server runs.",
      to: "servers",
    });
  if (f.spec.paused) out.push({ text: "spec.paused is true: the rollout under way is paused, and none is started.", next: "Unpause it." });
  if (active && r.state === "paused" && !f.spec.paused && !s?.suspended) {
    out.push({
      text: sentence(`${shown(f)} is paused${r.waiting ? `: ${r.waiting}` : ""}`),
      next: "Resume the rollout, force its promotion, or write another version into the spec.",
      to: "rollout",
    });
  } else if (active && r.waiting && !f.spec.paused && !s?.suspended) {
    out.push({
      text: sentence(`${shown(f)} waits: ${r.waiting}`),
      next: why === "WaitsForApproval" ? "Approve the rollout, or force its promotion." : "Wait, or force its promotion.",
      to: "rollout",
    });
  }
  if (conditionOf(f, "Promoting")?.reason === "NextWaits" && holds(f, "Promoting")) {
    out.push({
      text: sentence(`${shown(f)} is past its canaries and is not disturbed: what the spec says now begins when it has ended`),
      next: "Wait for its end. To end it earlier, cancel it on its page.",
      to: "rollout",
    });
  }
  if (why === "RolloutFailed" || why === "RolloutCancelled") {
    out.push({
      text:
        why === "RolloutFailed"
          ? sentence(`${shown(f)} failed, and the same spec is not tried again`)
          : sentence(`an operator ended ${shown(f)}, and the same spec is not tried again`),
      next: `Change the spec, or the value of the annotation ${FORCE_ROLLOUT} to try again.`,
      to: "rollout",
    });
  } else if (why !== "" && !["Suspended", "Paused", "RolloutPaused", "WaitsForApproval"].includes(why)) {
    out.push({ text: sentence(stalled!.message), next: "Change the spec, or what the sentence names." });
  }
  if (conditionOf(f, "Degraded")?.status === "True") {
    out.push({
      text: sentence(conditionOf(f, "Degraded")!.message.split(": look at them")[0]!),
      next: `See which hosts failed. To try them again, change the value of the annotation ${FORCE_ROLLOUT}.`,
      to: r ? "rollout" : undefined,
    });
  }
  if (isObserved(f) && s?.conditions && (s.agents ?? 0) === 0)
    out.push({ text: "No host belongs to it.", next: "Change spec.selector. A host that several fleets select belongs to the oldest of them." });
  const ready = conditionOf(f, "Ready");
  if (out.length === 0 && ready?.status !== "True" && !active && !holds(f, "Progressing")) {
    out.push({ text: ready ? sentence(ready.message) : "The server has not looked at it yet.", next: "Wait some seconds." });
  }
  return out;
}

export type FleetCommand = "pause" | "unpause" | "promote" | "resume" | "delete";

/** The words of the menu. */
export const fleetCommandLabel: Record<string, string> = {
  edit: "Edit fleet…",
  resume: "Resume fleet…",
  pause: "Pause fleet…",
  unpause: "Unpause fleet…",
  promote: "Force promotion…",
  delete: "Delete fleet…",
};

/**
 * fleetMenu returns the server's commands with the editor, which is always possible. Of pause and
 * unpause only one exists at a time for who reads the menu.
 */
export function fleetMenu(commands: readonly Command[]): Command[] {
  const shown = commands.filter((c) => c.allowed || (c.name !== "pause" && c.name !== "unpause"));
  return [{ name: "edit", allowed: true, primary: !shown.some((c) => c.primary) }, ...shown];
}

interface Words {
  title: string;
  confirm: string;
  text: string;
  done: string;
  harmless?: boolean;
  /** The name of the fleet must be typed. */
  typed?: boolean;
}

export function fleetCommandText(command: FleetCommand, f: Fleet): Words {
  const name = f.metadata.name;
  const hosts = plural(f.status?.agents ?? 0, "host");
  switch (command) {
    case "pause":
      return {
        title: `Pause ${name}?`,
        confirm: "Pause fleet",
        text: "Sets spec.paused. The rollout under way is paused, and none is started.",
        done: `${name} is paused`,
        harmless: true,
      };
    case "unpause":
      return {
        title: `Unpause ${name}?`,
        confirm: "Unpause fleet",
        text: "Removes spec.paused. Its rollout goes on, or the next one starts.",
        done: `${name} goes on`,
        harmless: true,
      };
    case "promote":
      return {
        title: `Force the promotion of ${name}?`,
        confirm: `Force promotion on ${hosts}`,
        done: `The promotion of ${name} is forced`,
        typed: true,
        text: `Sets spec.forcePromote to ${shortHash(f.status?.requestedRolloutHash ?? "")}…, the hash that is being rolled out. Its rollout goes on without the observation of canaries, soak and approval, and after a stop by a gate. Windows, freezes and the exposure budget still hold.`,
      };
    case "resume":
      return {
        title: `Resume ${name}?`,
        confirm: "Resume fleet",
        done: `${name} goes on`,
        harmless: true,
        text: `Muster brings its ${hosts} to what the spec says again, also those that were taken over.`,
      };
    case "delete":
      return {
        title: `Delete ${name}?`,
        confirm: `Delete ${name}, which has ${hosts}`,
        done: `${name} was deleted`,
        typed: true,
        text: `Its ${hosts} keep their versions, and nothing brings them to another one. A rollout under way is cancelled, unless it is past its canaries: then it goes on to its end.`,
      };
  }
}

/** The labels of tools that write fleets from a repository. */
const TOOLS: readonly [label: string, tool: string][] = [
  ["kustomize.toolkit.fluxcd.io/name", "Flux"],
  ["helm.toolkit.fluxcd.io/name", "Flux"],
  ["argocd.argoproj.io/instance", "Argo CD"],
  ["app.kubernetes.io/managed-by", ""],
];

/** managedBy names the tool that would undo a change made here; empty: none is known. */
export function managedBy(f: Fleet): string {
  const marks = { ...f.metadata.annotations, ...f.metadata.labels };
  for (const [label, tool] of TOOLS) if (marks[label]) return tool || marks[label];
  return marks["argocd.argoproj.io/tracking-id"] ? "Argo CD" : "";
}

/** startsText says whether saving starts a rollout, and why. */
export function startsText(d: FleetDiff): { title: string; text: string } {
  const hash = d.hashBefore ? (d.hashBefore === d.hashAfter ? "The hash stays" : "The hash changes") : "The hash is new";
  if (!d.startsRollout) return { title: "Starts no rollout", text: sentence(d.reason || hash) };
  return { title: d.waitsFor ? "Starts a rollout later" : "Starts a rollout", text: sentence(d.reason || hash) };
}

/** startsNow reports whether saving starts a rollout at once. */
export const startsNow = (d: FleetDiff): boolean => d.startsRollout && !d.waitsFor && !d.previews.some((p) => p.error);

export const tookText = (p: FleetPreview): string => (p.durationText ? durationText(p.durationText) : "");
