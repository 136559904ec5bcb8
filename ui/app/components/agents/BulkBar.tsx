/** Orders for the selected hosts. Without a selection every button says so: none ever means the whole fleet. */
import { Menu } from "@mantine/core";
import { useMediaQuery } from "@mantine/hooks";
import { IconChevronDown } from "@tabler/icons-react";
import { ReasonButton } from "~/components/base/ReasonButton";
import { plural } from "~/util/words";
import classes from "./Agents.module.css";

export const ORDERS = ["upgrade", "rollout", "tag", "reassign", "diagnostics", "rollback", "stage", "unenroll"] as const;
export type Order = (typeof ORDERS)[number];

const words: Record<Order, string> = {
  upgrade: "Upgrade…",
  rollout: "Roll out to these…",
  tag: "Tag…",
  reassign: "Reassign…",
  diagnostics: "Diagnostics…",
  rollback: "Roll back…",
  stage: "Stage…",
  unenroll: "Unenrol…",
};

interface Props {
  /** How many hosts are selected; undefined while the server counts. */
  count: number | undefined;
  /** Every host that matches is selected, by the query. */
  everything: boolean;
  /** How many match. */
  total: number | undefined;
  /** Why all cannot be selected now. */
  noAll: string | null;
  onAll: () => void;
  onClear: () => void;
  onOrder: (order: Order) => void;
}

export function BulkBar({ count, everything, total, noAll, onAll, onClear, onOrder }: Props) {
  const wide = useMediaQuery("(min-width: 1480px)", true, { getInitialValueInEffect: false });
  const medium = useMediaQuery("(min-width: 700px)", true, { getInitialValueInEffect: false });
  const reason = count === undefined ? "The server counts the hosts." : count === 0 ? "Select hosts first." : null;
  const buttons: Order[] = wide ? ["tag", "reassign", "diagnostics", "rollout"] : medium ? ["tag", "rollout"] : [];
  const more = ORDERS.filter((o) => o !== "upgrade" && !buttons.includes(o));
  const some = count !== undefined && count > 0;
  return (
    <div className={classes.bulk} data-none={some ? undefined : true} role="region" aria-label="Orders for the selected hosts">
      <span className={classes.bulkText}>
        <span role="status">
          {count === undefined ? (
            "Counting hosts"
          ) : some ? (
            <strong>{everything ? (count === 1 ? "The one host" : `All ${plural(count, "host")}`) : plural(count, "host")} selected</strong>
          ) : (
            <span className={classes.quiet}>No host is selected</span>
          )}
        </span>
        {!everything && total !== undefined && total > (count ?? 0) && noAll === null ? (
          <button type="button" className={classes.link} onClick={onAll}>
            Select all {total.toLocaleString()} that match
          </button>
        ) : null}
        {some ? (
          <button type="button" className={classes.link} onClick={onClear}>
            Clear
          </button>
        ) : null}
      </span>
      <Menu position="top-end" width={220} disabled={reason !== null}>
        <Menu.Target>
          <ReasonButton variant="default" reason={reason} rightSection={<IconChevronDown size={14} aria-hidden />}>
            More
          </ReasonButton>
        </Menu.Target>
        <Menu.Dropdown>
          {more.map((o) => (
            <Menu.Item key={o} className={o === "unenroll" ? classes.danger : undefined} onClick={() => onOrder(o)}>
              {words[o]}
            </Menu.Item>
          ))}
        </Menu.Dropdown>
      </Menu>
      {buttons.map((o) => (
        <ReasonButton key={o} variant="default" reason={reason} onClick={() => onOrder(o)}>
          {words[o]}
        </ReasonButton>
      ))}
      <ReasonButton reason={reason} onClick={() => onOrder("upgrade")}>
        {words.upgrade}
      </ReasonButton>
    </div>
  );
}
