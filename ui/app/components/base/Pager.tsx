/** Pages of a list that the server counts. */
import { ActionIcon } from "@mantine/core";
import { IconChevronLeft, IconChevronRight } from "@tabler/icons-react";
import classes from "./Pager.module.css";

interface Props {
  page: number;
  perPage: number;
  total: number;
  /** What is listed, in the plural. */
  of: string;
  /** The last page that the server returns, for lists that are bounded. */
  last?: number;
  onPage: (page: number) => void;
}

export function Pager({ page, perPage, total, of, last, onPage }: Props) {
  const pages = Math.max(1, Math.ceil(total / perPage));
  const end = last ? Math.min(last, pages) : pages;
  const from = total === 0 ? 0 : (page - 1) * perPage + 1;
  const to = Math.min(total, page * perPage);
  return (
    <nav className={classes.pager} aria-label={`Pages of ${of}`}>
      <span aria-live="polite">
        {from.toLocaleString()}–{to.toLocaleString()} of {total.toLocaleString()} {of}
      </span>
      {end > 1 ? (
        <span className={classes.buttons}>
          <ActionIcon aria-label="Previous page" disabled={page <= 1} onClick={() => onPage(page - 1)}>
            <IconChevronLeft size={16} aria-hidden />
          </ActionIcon>
          <ActionIcon aria-label="Next page" disabled={page >= end} onClick={() => onPage(page + 1)}>
            <IconChevronRight size={16} aria-hidden />
          </ActionIcon>
        </span>
      ) : null}
      {page === end && end < pages ? <span>Narrow the list to see the others.</span> : null}
    </nav>
  );
}
