/** Saved views: names for searches of this page, which the server keeps for everybody. */
import { Button, Menu, TextInput } from "@mantine/core";
import { IconBookmark } from "@tabler/icons-react";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { defaultParseSearch, defaultStringifySearch, getRouteApi, Link } from "@tanstack/react-router";
import { useState } from "react";
import { call } from "~/api/client";
import { saveView, viewsQuery } from "~/api/overview";
import { keys } from "~/api/queries";
import type { View } from "~/api/types";
import { Dialog } from "~/components/base/Dialog";
import { toast } from "~/components/base/Toasts";
import { type AgentsSearch, parseAgentsSearch } from "~/util/agents/search";
import classes from "./Agents.module.css";

const route = getRouteApi("/shell/agents");

/** The search without its page: a view starts at the first. */
const textOf = ({ page: _, ...search }: AgentsSearch): string => defaultStringifySearch(search).replace(/^\?/, "");

const searchOf = (v: View): AgentsSearch => parseAgentsSearch(defaultParseSearch(v.search));

export function ViewsMenu() {
  const search = route.useSearch();
  const views = useQuery({ ...viewsQuery, select: (all) => all.filter((v) => v.page === "agents") });
  const [asked, setAsked] = useState<"save" | View | null>(null);
  const here = textOf(search);
  const shown = views.data?.find((v) => textOf(searchOf(v)) === here);
  return (
    <>
      <Menu position="bottom-end" width={260}>
        <Menu.Target>
          <Button variant="default" leftSection={<IconBookmark size={14} aria-hidden />}>
            {shown ? shown.name : "Views"}
          </Button>
        </Menu.Target>
        <Menu.Dropdown>
          {views.data?.length === 0 ? <Menu.Label>No view is saved yet.</Menu.Label> : null}
          {views.isError ? <Menu.Label>The views could not be read.</Menu.Label> : null}
          {views.data?.map((v) => (
            <Menu.Item
              key={v.id}
              className={v === shown ? classes.shown : undefined}
              aria-current={v === shown || undefined}
              renderRoot={(props) => <Link {...props} to="/agents" search={searchOf(v)} />}
            >
              {v.name}
            </Menu.Item>
          ))}
          <Menu.Divider />
          <Menu.Item onClick={() => setAsked("save")}>Save this view…</Menu.Item>
          {shown ? (
            <Menu.Item className={classes.danger} onClick={() => setAsked(shown)}>
              Delete “{shown.name}”…
            </Menu.Item>
          ) : null}
        </Menu.Dropdown>
      </Menu>
      {asked === "save" ? <SaveDialog search={here} views={views.data ?? []} onClose={() => setAsked(null)} /> : null}
      {asked && asked !== "save" ? <DeleteDialog view={asked} onClose={() => setAsked(null)} /> : null}
    </>
  );
}

function SaveDialog({ search, views, onClose }: { search: string; views: readonly View[]; onClose: () => void }) {
  const client = useQueryClient();
  const [name, setName] = useState("");
  const given = name.trim();
  const replaces = views.some((v) => v.name === given);
  const save = useMutation({
    mutationFn: () => saveView("agents", given, search),
    onSuccess: () => {
      toast({ kind: "done", title: `The view “${given}” is saved` });
      void client.invalidateQueries({ queryKey: keys.views });
      onClose();
    },
  });
  return (
    <Dialog
      title="Save this view?"
      confirm={replaces ? "Replace view" : "Save view"}
      reason={given === "" ? "Give it a name first." : null}
      busy={save.isPending}
      error={save.error}
      onConfirm={() => save.mutate()}
      onClose={onClose}
    >
      <p>It has the search, the filters and the order of this page. Everybody who signs in to this server can use it.</p>
      <TextInput
        label="Name"
        maxLength={80}
        data-autofocus
        value={name}
        onChange={(e) => setName(e.currentTarget.value)}
        description={replaces ? "A view of this name exists; it is replaced." : undefined}
      />
    </Dialog>
  );
}

function DeleteDialog({ view, onClose }: { view: View; onClose: () => void }) {
  const client = useQueryClient();
  const remove = useMutation({
    mutationFn: () => call("delete", "/api/v1/views/{viewId}", { path: { viewId: view.id } }),
    onSuccess: () => {
      void client.invalidateQueries({ queryKey: keys.views });
      onClose();
    },
  });
  return (
    <Dialog
      title={`Delete the view “${view.name}”?`}
      confirm="Delete view"
      danger
      busy={remove.isPending}
      error={remove.error}
      onConfirm={() => remove.mutate()}
      onClose={onClose}
    >
      <p>It is deleted for everybody. No host changes.</p>
    </Dialog>
  );
}
