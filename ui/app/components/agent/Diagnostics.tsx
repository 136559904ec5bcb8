/** The diagnostics of an agent: requests and the files that came. The server keeps the latest five. */
import { ActionIcon, Anchor } from "@mantine/core";
import { IconTrash } from "@tabler/icons-react";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { deleteUpload, uploadsQuery } from "~/api/agent";
import type { Agent, Upload } from "~/api/types";
import { Dialog } from "~/components/base/Dialog";
import { LoadError, Section } from "~/components/base/Page";
import { ReasonButton } from "~/components/base/ReasonButton";
import { When } from "~/components/base/Time";
import { uploadText } from "~/util/agent/upload";
import classes from "./Side.module.css";

export function Diagnostics({ agent, onRequest }: { agent: Agent; onRequest: () => void }) {
  const uploads = useQuery(uploadsQuery(agent.id));
  const [deleting, setDeleting] = useState<Upload | null>(null);
  const refused = agent.commands?.find((c) => c.name === "diagnostics" && !c.allowed)?.reason ?? null;
  return (
    <Section
      title="Diagnostics"
      plain
      aside={
        <ReasonButton size="compact-sm" variant="subtle" color="gray" reason={refused} onClick={onRequest}>
          Request diagnostics
        </ReasonButton>
      }
    >
      {uploads.isError ? <LoadError what="The diagnostics" error={uploads.error} onRetry={() => void uploads.refetch()} /> : null}
      {uploads.data?.length === 0 ? (
        <p className={classes.none}>None were requested. The host sends its logs, its state and its configuration, without secrets.</p>
      ) : null}
      {uploads.data && uploads.data.length > 0 ? (
        <ul className={classes.uploads} aria-label="Diagnostics">
          {uploads.data.map((u) => (
            <li key={u.id}>
              <span>
                {u.filePath ? (
                  <Anchor href={u.filePath} download={u.name} fz="inherit" underline="always">
                    {u.name}
                  </Anchor>
                ) : (
                  uploadText(u)
                )}
                <span className={classes.sub}>
                  requested <When at={u.createTime} />
                  {u.filePath || !u.error ? "" : `: ${u.error}`}
                </span>
              </span>
              {u.filePath ? (
                <ActionIcon aria-label={`Delete ${u.name}`} onClick={() => setDeleting(u)}>
                  <IconTrash size={14} aria-hidden />
                </ActionIcon>
              ) : null}
            </li>
          ))}
        </ul>
      ) : null}
      {deleting ? <DeleteUpload agentId={agent.id} upload={deleting} onClose={() => setDeleting(null)} /> : null}
    </Section>
  );
}

function DeleteUpload({ agentId, upload, onClose }: { agentId: string; upload: Upload; onClose: () => void }) {
  const client = useQueryClient();
  const remove = useMutation({
    mutationFn: () => deleteUpload(upload.id),
    onSuccess: () => {
      void client.invalidateQueries({ queryKey: uploadsQuery(agentId).queryKey });
      onClose();
    },
  });
  return (
    <Dialog
      title={`Delete ${upload.name}?`}
      confirm="Delete file"
      danger
      busy={remove.isPending}
      error={remove.error}
      onConfirm={() => remove.mutate()}
      onClose={onClose}
    >
      The file is removed from the server. The host keeps what it has collected only while it sends it.
    </Dialog>
  );
}
