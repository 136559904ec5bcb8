/** A draft: its stored preview, and the button that starts exactly what was previewed. */
import { Button } from "@mantine/core";
import { IconRefresh } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { ApiError } from "~/api/client";
import { rolloutPreviewQuery } from "~/api/queries";
import type { Rollout } from "~/api/types";
import { willOf } from "~/util/plan/planPreview";
import { startText, whyNotStart } from "~/util/rollout/preview";
import { sentence } from "~/util/words";
import { Callout } from "../base/Callout";
import { LoadError, Loading } from "../base/Page";
import { ReasonButton } from "../base/ReasonButton";
import { PreviewPanel } from "../rollout/PreviewPanel";
import { StartDialog } from "./StartDialog";

export function DraftPreview({ rollout: r }: { rollout: Rollout }) {
  const preview = useQuery(rolloutPreviewQuery(r.id));
  return (
    <div>
      {preview.isError ? <Refused error={preview.error} onRetry={() => void preview.refetch()} /> : null}
      {preview.isPending ? <Loading rows={4} /> : null}
      {preview.data ? <PreviewPanel preview={preview.data} /> : null}
    </div>
  );
}

/** The primary button of a draft. The server says whether it can be started, the preview on how many hosts. */
export function StartButton({ rollout: r }: { rollout: Rollout }) {
  const preview = useQuery(rolloutPreviewQuery(r.id));
  const [starting, setStarting] = useState(false);
  const start = r.commands?.find((c) => c.name === "start");
  const reason = start && !start.allowed ? sentence(start.reason ?? "It cannot be started") : whyNotStart(preview.data, preview.error);
  return (
    <>
      <Button variant="default" leftSection={<IconRefresh size={14} aria-hidden />} loading={preview.isFetching} onClick={() => void preview.refetch()}>
        Preview again
      </Button>
      <ReasonButton reason={reason} onClick={() => setStarting(true)}>
        {preview.data && willOf(preview.data) > 0 ? `${startText(preview.data)}…` : "Start…"}
      </ReasonButton>
      {starting && preview.data ? <StartDialog rollout={r} preview={preview.data} onClose={() => setStarting(false)} /> : null}
    </>
  );
}

/** A refused plan is not a network error: the server's message says what to change. */
function Refused({ error, onRetry }: { error: unknown; onRetry: () => void }) {
  if (!(error instanceof ApiError) || error.statusCode < 400 || error.statusCode >= 500)
    return <LoadError what="The preview" error={error} onRetry={onRetry} />;
  return (
    <Callout kind="error" title="This draft cannot be started">
      <div>{sentence(error.message)}</div>
      <div>The plan of a draft cannot be changed: delete it and create another, or preview it again once the hosts have changed.</div>
    </Callout>
  );
}
