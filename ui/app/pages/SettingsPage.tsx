/** The settings in force on this server, and where each comes from. */
import { Switch } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { settingsQuery } from "~/api/overview";
import type { Setting } from "~/api/types";
import { CopyBlock } from "~/components/base/CopyBlock";
import { type Column, DataTable } from "~/components/base/DataTable";
import { FilterInput } from "~/components/base/FilterInput";
import { Empty, LoadError, Loading, PageHead, Section } from "~/components/base/Page";
import { SubNav } from "~/components/base/SubNav";
import { filterSettings, originWord, valueText } from "~/util/settings/settings";
import { plural, sentence } from "~/util/words";
import classes from "./Admin.module.css";
import { SETTINGS_PAGES } from "./subPages";

const route = getRouteApi("/shell/settings");

const columns: Column<Setting>[] = [
  { id: "key", header: "Setting", nowrap: true, cell: (s) => <strong className="mono">{s.key}</strong> },
  {
    id: "value",
    header: "Value",
    width: "28%",
    cell: (s) => (valueText(s) === "" ? <span className={classes.muted}>not set</span> : <span className="mono">{valueText(s)}</span>),
  },
  {
    id: "origin",
    header: "From",
    nowrap: true,
    wide: true,
    cell: (s) => (s.origin === "default" ? <span className={classes.muted}>{originWord[s.origin]}</span> : originWord[s.origin]),
  },
  { id: "description", header: "What it does", width: "44%", wide: true, cell: (s) => <span className={classes.sub}>{sentence(s.description)}</span> },
];

export function SettingsPage() {
  const { q, changed = false } = route.useSearch();
  const navigate = useNavigate({ from: "/settings" });
  const list = useQuery(settingsQuery);
  const shown = filterSettings(list.data ?? [], q, changed);
  return (
    <>
      <PageHead
        title="Settings"
        docs="server"
        sub="The settings in force on the server that answers this page, without secrets. A file, the environment or a flag sets them; the server reads them when it starts."
      />
      <SubNav label="Settings" pages={SETTINGS_PAGES} />
      {list.isError ? <LoadError what="The settings" error={list.error} onRetry={() => void list.refetch()} /> : null}
      {list.isPending ? <Loading /> : null}
      {list.data ? (
        <div className={classes.stack}>
          <div>
            <div className={classes.toolbar}>
              <span className={classes.inline}>
                <FilterInput
                  label="Find a setting"
                  value={q ?? ""}
                  onChange={(text) => void navigate({ search: (old) => ({ ...old, q: text || undefined }), replace: true })}
                />
                <Switch
                  label="Only changed ones"
                  checked={changed}
                  onChange={(e) => void navigate({ search: (old) => ({ ...old, changed: e.currentTarget.checked || undefined }), replace: true })}
                />
              </span>
              <span>{plural(shown.length, "setting")}</span>
            </div>
            {shown.length === 0 ? (
              <Empty title={changed && !q ? "All settings have their defaults" : "No setting matches"} />
            ) : (
              <DataTable label="Settings" columns={columns} rows={shown} rowId={(s) => s.key} />
            )}
          </div>
          <Section title="Change a setting" plain flush>
            <CopyBlock
              label="Commands that change a setting"
              text={"muster server --example-config > server.yml   # every key explained\nmuster server --config server.yml"}
            />
          </Section>
        </div>
      ) : null}
    </>
  );
}
