import { Button, Group } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { IconPlayerPlay, IconRefresh } from "@tabler/icons-react";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { ApiError } from "~/api/client";
import { rolloutPreviewQuery } from "~/api/queries";
import type { Rollout } from "~/api/types";
import { startText, whyNotStart } from "~/util/preview";
import { sentence } from "~/util/words";
import { Loading, LoadError, Panel } from "../Blocks";
import { Callout } from "../Callout";
import { ReasonButton } from "../ReasonButton";
import { CommandDialog } from "./CommandDialog";
import { PreviewPanel } from "./PreviewPanel";
import { StartDialog } from "./StartDialog";

/** A draft's stored preview, with the button that starts exactly it. */
export function Draft({ rollout: r }: { rollout: Rollout }) {
  const preview = useQuery(rolloutPreviewQuery(r.id));
  const navigate = useNavigate();
  const [starting, setStarting] = useState(false);
  const [deleting, setDeleting] = useState(false);
  return (
    <>
      <Group gap="xs" mb="md">
        <ReasonButton leftSection={<IconPlayerPlay size={16} aria-hidden />} reason={whyNotStart(preview.data, preview.error)} onClick={() => setStarting(true)}>
          {preview.data && preview.data.targets.length > 0 ? `${startText(preview.data)}…` : "Start…"}
        </ReasonButton>
        <Button variant="default" leftSection={<IconRefresh size={16} aria-hidden />} loading={preview.isFetching} onClick={() => void preview.refetch()}>Preview again</Button>
        <Button variant="default" onClick={() => setDeleting(true)}>Delete draft…</Button>
      </Group>
      {preview.isError ? <Refused error={preview.error} onRetry={() => void preview.refetch()} /> : null}
      {preview.isPending ? <Panel><Loading rows={4} /></Panel> : null}
      {preview.data ? <PreviewPanel preview={preview.data} pinned /> : null}
      {starting && preview.data ? <StartDialog rollout={r} preview={preview.data} onClose={() => setStarting(false)} /> : null}
      {deleting ? <CommandDialog rollout={r} commands={["delete"]} onClose={() => setDeleting(false)} onDone={() => void navigate({ to: "/rollouts" })} /> : null}
    </>
  );
}

/** A refused plan is not a network error: the server's message says what to change. */
function Refused({ error, onRetry }: { error: unknown; onRetry: () => void }) {
  if (!(error instanceof ApiError) || error.statusCode < 400 || error.statusCode >= 500) return <LoadError what="The preview" error={error} onRetry={onRetry} />;
  return (
    <Callout kind="error" title="This draft cannot be started">
      <div>{sentence(error.message)}</div>
      <div>The plan of a draft cannot be changed: delete it and create another, or preview again once the fleet has changed.</div>
    </Callout>
  );
}
