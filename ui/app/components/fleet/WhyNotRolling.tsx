import { IconHandStop } from "@tabler/icons-react";
import type { Fleet } from "~/api/types";
import { obstaclesOf } from "~/util/fleet/fleet";
import { useClock } from "../base/Now";
import { Section } from "../base/Page";
import { TextLink } from "../base/TextLink";
import classes from "./Fleet.module.css";

/** What keeps a fleet from rolling out, each with what to do; nothing if nothing does. */
export function WhyNotRolling({ fleet: f }: { fleet: Fleet }) {
  const obstacles = obstaclesOf(f, useClock());
  if (obstacles.length === 0) return null;
  const rollout = f.status?.rollout?.id;
  return (
    <Section title="Why is it not rolling out?">
      <ul className={classes.obstacles}>
        {obstacles.map((o) => (
          <li key={o.text} className={classes.obstacle}>
            <IconHandStop size={16} aria-hidden />
            <div>{o.text}</div>
            <div className={classes.next}>
              {o.next}
              {o.to === "rollout" && rollout ? (
                <>
                  {" "}
                  <TextLink to="/rollouts/$rolloutId" params={{ rolloutId: rollout }} inherit underline="always">
                    Show the rollout
                  </TextLink>
                </>
              ) : null}
              {o.to === "servers" ? (
                <>
                  {" "}
                  <TextLink to="/servers" inherit underline="always">
                    Show the servers
                  </TextLink>
                </>
              ) : null}
            </div>
          </li>
        ))}
      </ul>
    </Section>
  );
}
