import { Text } from "@mantine/core";
import type { Matching } from "~/util/matching";
import classes from "./QueryBar.module.css";

/** Says in an order's dialog by which query it is for whom. */
export function MatchingNote({ matching }: { matching: Matching }) {
  return (
    <div>
      <pre className={classes.place} tabIndex={0} aria-label="The query of this order">{matching.kuery}</pre>
      <Text size="xs" c="dimmed" mt={4}>
        {matching.inactive ? "Inactive and unenrolled agents too. " : ""}
        The server asks this query again when you press the button: agents that match it by then are meant.
      </Text>
    </div>
  );
}
