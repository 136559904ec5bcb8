/** The basic blocks of every page. */
import { Button, Group, Skeleton, Stack, Text, Title } from "@mantine/core";
import { useEffect, type ReactNode } from "react";
import { messageOf } from "~/api/client";
import { Callout } from "./Callout";
import classes from "./Blocks.module.css";

export function PageHead({ title, hint, children }: { title: string; hint?: ReactNode; children?: ReactNode }) {
  useEffect(() => {
    document.title = `${title} · Muster`;
  }, [title]);
  return (
    <Group justify="space-between" align="flex-end" gap="sm" mb="md">
      <div>
        <Title order={1}>{title}</Title>
        {hint ? <Text size="sm" c="dimmed" component="div">{hint}</Text> : null}
      </div>
      {children ? <Group gap="xs">{children}</Group> : null}
    </Group>
  );
}

export function Panel({ title, aside, children, flush }: { title?: string; aside?: ReactNode; children: ReactNode; flush?: boolean }) {
  return (
    <section className={classes.panel} aria-label={title}>
      {title ? (
        <header className={classes.panelHead}>
          <Title order={2} className={classes.panelTitle}>{title}</Title>
          {aside}
        </header>
      ) : null}
      <div className={flush ? undefined : classes.panelBody}>{children}</div>
    </section>
  );
}

export function Empty({ icon, title, children }: { icon?: ReactNode; title: string; children?: ReactNode }) {
  return (
    <div className={classes.empty}>
      {icon}
      <Text fw={600}>{title}</Text>
      {children ? <Text size="sm" c="dimmed" component="div" maw={560}>{children}</Text> : null}
    </div>
  );
}

export function LoadError({ what, error, onRetry }: { what: string; error: unknown; onRetry?: () => void }) {
  return (
    <Callout kind="error" title={`${what} could not be read`}>
      <Stack gap="xs" align="flex-start">
        <span>{messageOf(error)}</span>
        {onRetry ? <Button size="xs" variant="default" onClick={onRetry}>Try again</Button> : null}
      </Stack>
    </Callout>
  );
}

export function Loading({ rows = 5 }: { rows?: number }) {
  return (
    <Stack gap={8} p="md" aria-busy="true" aria-label="Loading" role="status">
      {Array.from({ length: rows }, (_, i) => <Skeleton key={i} h={28} radius="sm" />)}
    </Stack>
  );
}

export function Facts({ rows }: { rows: [string, ReactNode][] }) {
  return (
    <dl className={classes.facts}>
      {rows.map(([name, value]) => (
        <div key={name} className={classes.fact}>
          <dt>{name}</dt>
          <dd>{value === "" || value === null || value === undefined ? <span className={classes.none}>not reported</span> : value}</dd>
        </div>
      ))}
    </dl>
  );
}
