/** Pages that belong together, as tabs with addresses of their own. */
import { Link } from "@tanstack/react-router";
import classes from "./SubNav.module.css";

export function SubNav({ label, pages }: { label: string; pages: readonly { to: string; label: string }[] }) {
  return (
    <nav className={classes.nav} aria-label={label}>
      {pages.map((p) => (
        <Link
          key={p.to}
          to={p.to}
          className={classes.tab}
          activeOptions={{ exact: true, includeSearch: false }}
          activeProps={{ "data-active": true, "aria-current": "page" }}
        >
          {p.label}
        </Link>
      ))}
    </nav>
  );
}
