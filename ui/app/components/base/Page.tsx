/** The frame and the blocks of every page. */
import { Button, Skeleton } from "@mantine/core";
import { IconBook2 } from "@tabler/icons-react";
import { type ReactNode, useEffect } from "react";
import { messageOf } from "~/api/client";
import { Callout } from "~/components/base/Callout";
import { type Crumb, useCrumbs } from "~/hooks/useCrumbs";
import { type DocsPage, docsUrl } from "~/util/docs";
import { closed } from "~/util/words";
import classes from "./Page.module.css";

interface HeadProps {
  title: ReactNode;
  /** The title as text, if it is not one: for the browser's tab and the breadcrumbs. */
  name?: string;
  /** The pages above this one, outermost first; the title follows them. */
  crumbs?: readonly Crumb[];
  /** State beside the title. */
  badge?: ReactNode;
  sub?: ReactNode;
  docs?: DocsPage;
  /** Buttons; the primary one comes last. */
  children?: ReactNode;
}

export function PageHead({ title, name = typeof title === "string" ? title : "", crumbs, badge, sub, docs, children }: HeadProps) {
  useCrumbs(name, crumbs);
  useEffect(() => {
    document.title = `${name} · Muster`;
  }, [name]);
  return (
    <header className={classes.head}>
      <div className={classes.headText}>
        <div className={classes.titleRow}>
          <h1 className={classes.title}>{title}</h1>
          {badge}
        </div>
        {sub ? <div className={classes.sub}>{sub}</div> : null}
      </div>
      <div className={classes.headActions}>
        {docs ? (
          <a className={classes.docs} href={docsUrl(docs)} target="_blank" rel="noreferrer" title="Documentation of this page, in a new tab">
            <IconBook2 size={16} aria-hidden />
            <span className="sr-only">Documentation of this page, in a new tab</span>
          </a>
        ) : null}
        {children}
      </div>
    </header>
  );
}

interface SectionProps {
  title?: string;
  aside?: ReactNode;
  children: ReactNode;
  /** Without padding, for tables and lists. */
  flush?: boolean;
  /** On the page itself, without a frame. */
  plain?: boolean;
}

/** A part of a page with a heading. */
export function Section({ title, aside, children, flush, plain }: SectionProps) {
  return (
    <section className={classes.section} data-plain={plain || undefined} aria-label={title}>
      {title || aside ? (
        <header className={classes.sectionHead}>
          {title ? <h2 className={classes.sectionTitle}>{title}</h2> : <span />}
          {aside}
        </header>
      ) : null}
      <div className={flush ? undefined : classes.sectionBody}>{children}</div>
    </section>
  );
}

export type Fact = [name: string, value: ReactNode];

/** Names and values; a value that is missing is shown as such. */
export function Facts({ rows, columns = 1 }: { rows: readonly Fact[]; columns?: 1 | 2 | 3 }) {
  return (
    <dl className={classes.facts} data-columns={columns}>
      {rows.map(([name, value]) => (
        <div key={name} className={classes.fact}>
          <dt>{name}</dt>
          <dd>{value === "" || value === null || value === undefined ? <span className={classes.none}>–</span> : value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** Facts in one line under a page's title, separated by middle dots. */
export function Line({ children }: { children: readonly ReactNode[] }) {
  return (
    <span className={classes.line}>
      {children
        .filter((c) => c !== null && c !== undefined && c !== false)
        .map((c, i) => (
          <span key={i}>{c}</span>
        ))}
    </span>
  );
}

/** Nothing is here yet: why, and what to do next. */
export function Empty({ icon, title, children }: { icon?: ReactNode; title: string; children?: ReactNode }) {
  return (
    <div className={classes.empty}>
      {icon}
      <strong>{title}</strong>
      {children ? <div className={classes.emptyText}>{children}</div> : null}
    </div>
  );
}

export function LoadError({ what, error, onRetry }: { what: string; error: unknown; onRetry?: () => void }) {
  return (
    <Callout kind="error" title={`${what} could not be read`}>
      <div className={classes.retry}>
        <span>{closed(messageOf(error))} Nothing has been changed.</span>
        {onRetry ? (
          <Button variant="default" onClick={onRetry}>
            Retry
          </Button>
        ) : null}
      </div>
    </Callout>
  );
}

export function Loading({ rows = 5 }: { rows?: number }) {
  return (
    <div className={classes.loading} aria-busy="true" aria-label="Loading" role="status">
      {Array.from({ length: rows }, (_, i) => (
        <Skeleton key={i} h={20} radius="sm" />
      ))}
    </div>
  );
}
