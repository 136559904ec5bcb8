import { Badge, Button, Group, Stack, Table, Text, TextInput } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { IconPackage, IconKey } from "@tabler/icons-react";
import { useMemo, useState } from "react";
import { call, messageOf } from "~/api/client";
import { keys, packagesQuery, publisherKeysQuery } from "~/api/queries";
import type { Package } from "~/api/types";
import { Empty, Loading, LoadError, PageHead, Panel } from "~/components/Blocks";
import { Callout } from "~/components/Callout";
import { ConfirmDialog } from "~/components/ConfirmDialog";
import { CopyBlock, CopyIcon } from "~/components/CopyBlock";
import { Ago } from "~/components/Now";
import { ReasonButton } from "~/components/ReasonButton";
import { useToast } from "~/components/Toasts";
import { compareVersions } from "~/util/version";
import { size } from "~/util/words";
import classes from "./Tables.module.css";

const PUBLISH = `muster package sign --key release.key muster-agent-1.1.0-linux-amd64.tar.gz
muster package push muster-agent-1.1.0-linux-amd64.tar.gz`;

export function PackagesPage() {
  const packages = useQuery(packagesQuery);
  const keyList = useQuery(publisherKeysQuery);
  const [withdrawing, setWithdrawing] = useState<Package | null>(null);
  const keyName = (id: string) => keyList.data?.find((k) => k.id === id)?.name || id;
  const sorted = useMemo(
    () => [...(packages.data ?? [])].sort((a, b) => (a.component ?? "").localeCompare(b.component ?? "") || compareVersions(b.version, a.version) || a.file.localeCompare(b.file)),
    [packages.data],
  );
  return (
    <>
      <PageHead title="Packages" hint="Packages that agents can be upgraded to, and those of the components they run. Agents install only packages signed by keys they trust." />
      <Stack gap="md">
        <Panel flush>
          {packages.isError ? <LoadError what="The packages" error={packages.error} onRetry={() => void packages.refetch()} /> : null}
          {packages.isPending ? <Loading rows={4} /> : null}
          {packages.isSuccess && sorted.length === 0 ? (
            <Empty icon={<IconPackage size={36} stroke={1.5} aria-hidden />} title="No package is published yet">
              <p>Publish one with the command below; agents can be upgraded to it at once.</p>
            </Empty>
          ) : null}
          {sorted.length > 0 ? (
            <div className={classes.scroll} tabIndex={0} role="region" aria-label="Packages">
              <Table fz="sm" verticalSpacing={8} horizontalSpacing="md" className={classes.table}>
                <Table.Thead>
                  <Table.Tr>
                    {["Version", "Component", "Runtime", "Platform", "Size", "Commit", "SHA-256", "Signed by", "Published"].map((h) => <Table.Th key={h} scope="col">{h}</Table.Th>)}
                    <Table.Th scope="col"><span className="sr-only">Actions</span></Table.Th>
                  </Table.Tr>
                </Table.Thead>
                <Table.Tbody>
                  {sorted.map((p) => (
                    <Table.Tr key={p.file}>
                      <Table.Th scope="row" fw={600}>
                        <Group gap={6}><span className="mono">{p.version}</span>{p.snapshot ? <Badge size="xs" variant="default" radius="sm" tt="none">snapshot</Badge> : null}</Group>
                      </Table.Th>
                      <Table.Td className={classes.nowrap}>{p.component ?? "—"}</Table.Td>
                      <Table.Td className={classes.nowrap}>{p.runtime ?? "—"}</Table.Td>
                      <Table.Td className={classes.nowrap}>{p.os} · {p.arch}</Table.Td>
                      <Table.Td className={classes.nowrap}>{size(p.size)}</Table.Td>
                      <Table.Td><span className="mono" title={p.hash}>{p.hash.slice(0, 8)}</span></Table.Td>
                      <Table.Td><Group gap={2} wrap="nowrap"><span className="mono" title={p.sha256}>{p.sha256.slice(0, 12)}…</span><CopyIcon text={p.sha256} label={`Copy the SHA-256 of ${p.file}`} /></Group></Table.Td>
                      <Table.Td><span title={`Key ${p.key_id}`}>{keyName(p.key_id)}</span></Table.Td>
                      <Table.Td className={classes.nowrap}><Ago at={p.pushed_at} />{p.pushed_by ? <div className={classes.sub}>by {p.pushed_by}</div> : null}</Table.Td>
                      <Table.Td className={classes.end}><Button size="compact-xs" variant="subtle" color="gray" aria-label={`Withdraw ${p.file}`} onClick={() => setWithdrawing(p)}>Withdraw…</Button></Table.Td>
                    </Table.Tr>
                  ))}
                </Table.Tbody>
              </Table>
            </div>
          ) : null}
        </Panel>

        <Panel title="Publish a package">
          <Stack gap="xs">
            <Text size="sm">Sign and push packages on the machine with your signing key. The key is never sent to this server.</Text>
            <CopyBlock label="Commands that publish a package" text={PUBLISH} />
          </Stack>
        </Panel>

        <PublisherKeys />
      </Stack>
      {withdrawing ? <WithdrawDialog pkg={withdrawing} onClose={() => setWithdrawing(null)} /> : null}
    </>
  );
}

function WithdrawDialog({ pkg, onClose }: { pkg: Package; onClose: () => void }) {
  const client = useQueryClient();
  const toast = useToast();
  const withdraw = useMutation({
    mutationFn: () => call("delete", "/api/v1/packages/{file}", { path: { file: pkg.file } }),
    onSuccess: () => {
      toast({ kind: "done", title: `${pkg.file} was withdrawn` });
      for (const queryKey of [keys.packages, keys.versions, keys.preview]) void client.invalidateQueries({ queryKey });
      onClose();
    },
  });
  return (
    <ConfirmDialog title={`Withdraw ${pkg.component ? `${pkg.component} ` : ""}${pkg.version} for ${pkg.os} · ${pkg.arch}?`} confirm="Withdraw package" busy={withdraw.isPending} error={withdraw.error} onConfirm={() => withdraw.mutate()} onClose={onClose}>
      <span className="mono">{pkg.file}</span> can no longer be downloaded. Hosts that run this version keep it; upgrades to it that have not
      downloaded yet will fail.
    </ConfirmDialog>
  );
}

function PublisherKeys() {
  const client = useQueryClient();
  const toast = useToast();
  const list = useQuery(publisherKeysQuery);
  const [key, setKey] = useState("");
  const [name, setName] = useState("");
  const add = useMutation({
    mutationFn: () => call("post", "/api/v1/publisher_keys", { body: { public_key: key.trim(), name: name.trim() || undefined } }),
    onSuccess: () => {
      toast({ kind: "done", title: "The server accepts packages signed by this key" });
      setKey("");
      setName("");
      void client.invalidateQueries({ queryKey: keys.publisherKeys });
      void client.invalidateQueries({ queryKey: keys.server });
    },
  });
  return (
    <Panel title="Publisher keys">
      <Stack gap="sm">
        <Text size="sm" c="dimmed">The server accepts packages signed by these keys. A key added here does not change what enrolled agents trust: that was fixed when they enrolled.</Text>
        {list.isError ? <LoadError what="The publisher keys" error={list.error} onRetry={() => void list.refetch()} /> : null}
        {list.data?.map((k) => (
          <Group key={k.id} gap="sm" wrap="nowrap" align="flex-start">
            <IconKey size={16} aria-hidden className={classes.keyIcon} />
            <div className={classes.grow}>
              <Text size="sm" fw={600}>{k.name || k.id}</Text>
              <Text size="xs" c="dimmed"><span className="mono">{k.public_key}</span> · id <span className="mono">{k.id}</span> · added <Ago at={k.added_at} />{k.added_by ? ` by ${k.added_by}` : ""}</Text>
            </div>
          </Group>
        ))}
        {list.isSuccess && list.data.length === 0 ? <Text size="sm">No key yet: no package can be published.</Text> : null}
        <form
          onSubmit={(e) => {
            e.preventDefault();
            if (key.trim()) add.mutate();
          }}
        >
          <Group align="flex-end" gap="sm">
            <TextInput className={classes.grow} label="Public key" placeholder="RWQ…" value={key} onChange={(e) => setKey(e.currentTarget.value)} spellCheck={false} />
            <TextInput label="Name" value={name} onChange={(e) => setName(e.currentTarget.value)} />
            <ReasonButton type="submit" variant="default" loading={add.isPending} reason={key.trim() === "" ? "Paste the public key first." : null}>Add key</ReasonButton>
          </Group>
        </form>
        {add.isError ? <Callout kind="error" title="The key was not added">{messageOf(add.error)}</Callout> : null}
      </Stack>
    </Panel>
  );
}
