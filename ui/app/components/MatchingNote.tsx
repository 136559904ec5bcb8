import { Text } from "@mantine/core";
import type { Matching } from "~/util/matching";
import classes from "./QueryBar.module.css";

/** Shows the query of an upgrade, rollback or unenrollment for all matching agents. */
export function MatchingNote({ matching }: { matching: Matching }) {
  return (
    <div>
      <pre className={classes.place} tabIndex={0} aria-label="Query">{matching.kuery}</pre>
      <Text size="xs" c="dimmed" mt={4}>
        {matching.inactive ? "Includes inactive and unenrolled agents. " : ""}
        The server evaluates the query again when you press the button, and selects the agents that match then.
      </Text>
    </div>
  );
}
