/** The pages, on the left: a rail that can be narrowed, or a drawer on a narrow screen. */
import { Tooltip } from "@mantine/core";
import { IconLayoutSidebarLeftCollapse, IconLayoutSidebarLeftExpand } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { Link, useLocation } from "@tanstack/react-router";
import { attentionQuery } from "~/api/overview";
import { isHere, type NavPage, SETUP, WORK } from "~/pages/nav";
import { Logo } from "./Logo";
import classes from "./Rail.module.css";

interface Props {
  narrow: boolean;
  /** Absent in a drawer, which is never narrow. */
  onNarrow?: (narrow: boolean) => void;
}

export function Rail({ narrow, onNarrow }: Props) {
  const { data } = useQuery(attentionQuery);
  const badges: Record<string, { count: number; what: string }> = {
    "/agents": { count: data?.failures_unseen ?? 0, what: "failed upgrades that you have not seen" },
    "/incidents": { count: data?.incidents_open ?? 0, what: "open incidents" },
  };
  const group = (pages: readonly NavPage[]) => pages.map((p) => <Entry key={p.to} page={p} narrow={narrow} badge={badges[p.to]} />);
  const Toggle = narrow ? IconLayoutSidebarLeftExpand : IconLayoutSidebarLeftCollapse;
  return (
    <nav className={classes.rail} data-narrow={narrow || undefined} aria-label="Pages">
      <Link to="/" className={classes.brand} aria-label="Muster, overview">
        <Logo />
        {narrow ? null : <span>Muster</span>}
      </Link>
      <div className={classes.pages}>
        {group(WORK)}
        <hr className={classes.rule} />
        {group(SETUP)}
      </div>
      {onNarrow ? (
        <button
          type="button"
          className={classes.toggle}
          aria-label={narrow ? "Widen the navigation" : "Narrow the navigation"}
          onClick={() => onNarrow(!narrow)}
        >
          <Toggle size={18} stroke={1.6} aria-hidden />
        </button>
      ) : null}
    </nav>
  );
}

function Entry({ page, narrow, badge }: { page: NavPage; narrow: boolean; badge?: { count: number; what: string } }) {
  const here = useLocation({ select: (l) => isHere(page, l.pathname) });
  const Icon = page.icon;
  return (
    <Tooltip label={page.label} position="right" disabled={!narrow}>
      <Link
        to={page.to}
        className={classes.entry}
        data-here={here || undefined}
        aria-current={here ? "page" : undefined}
        aria-label={narrow ? page.label : undefined}
      >
        <Icon size={18} stroke={1.6} aria-hidden />
        {narrow ? null : <span className={classes.label}>{page.label}</span>}
        {badge && badge.count > 0 ? (
          <span className={classes.badge}>
            {badge.count.toLocaleString()}
            <span className="sr-only"> {badge.what}</span>
          </span>
        ) : null}
      </Link>
    </Tooltip>
  );
}
