/** Push archives from this browser, with their signatures and with progress. */
import { Button, FileButton, Modal, Progress } from "@mantine/core";
import { IconUpload } from "@tabler/icons-react";
import { useQueryClient } from "@tanstack/react-query";
import { useRef, useState } from "react";
import { messageOf } from "~/api/client";
import { pushPackage } from "~/api/packages";
import { keys } from "~/api/queries";
import { Badge } from "~/components/base/Badge";
import { Callout } from "~/components/base/Callout";
import dialog from "~/components/base/Dialog.module.css";
import { ReasonButton } from "~/components/base/ReasonButton";
import { useReturnFocus } from "~/hooks/useReturnFocus";
import { uploadsOf } from "~/util/packages/packages";
import { plural, size } from "~/util/words";
import classes from "./Upload.module.css";

type State = { share: number } | { done: true } | { error: string };

export function UploadDialog({ root, initial = [], onClose }: { root: boolean; initial?: File[]; onClose: () => void }) {
  useReturnFocus();
  const client = useQueryClient();
  const [files, setFiles] = useState<File[]>(initial);
  const [states, setStates] = useState<Record<string, State>>({});
  const [busy, setBusy] = useState(false);
  const abort = useRef<AbortController | null>(null);
  const { uploads, left } = uploadsOf(files);
  const todo = uploads.filter((u) => !("done" in (states[u.archive.name] ?? {})));
  const add = (more: File[]) => setFiles((old) => [...old.filter((f) => !more.some((m) => m.name === f.name)), ...more]);
  const close = () => {
    abort.current?.abort();
    onClose();
  };

  async function push() {
    setBusy(true);
    const control = new AbortController();
    abort.current = control;
    const show = (name: string, state: State) => setStates((old) => ({ ...old, [name]: state }));
    // One after the other: the server reads each archive whole.
    for (const u of todo) {
      if (control.signal.aborted) break;
      show(u.archive.name, { share: 0 });
      try {
        await pushPackage({ file: u.archive, openpgp: u.openpgp, digest: u.digest }, (share) => show(u.archive.name, { share }), control.signal);
        show(u.archive.name, { done: true });
      } catch (error) {
        show(u.archive.name, { error: messageOf(error) });
      }
    }
    for (const queryKey of [keys.packages, keys.versions, keys.trust]) void client.invalidateQueries({ queryKey });
    setBusy(false);
  }

  const finished = uploads.length > 0 && todo.length === 0;
  return (
    <Modal opened onClose={close} size="lg" centered title="Push packages?" closeButtonProps={{ "aria-label": "Close" }} classNames={{ title: dialog.title }}>
      <div className={dialog.form}>
        <DropZone
          onFiles={add}
          hint={
            root
              ? "Hosts install archives once the signed targets file names them. Choose an archive of Elastic's together with its .asc and .sha512 file."
              : "The server accepts Muster's packages once the publishers have published a root. Choose an archive of Elastic's together with its .asc and .sha512 file."
          }
        />
        {uploads.length > 0 ? (
          <ul className={classes.files}>
            {uploads.map((u) => (
              <Row key={u.archive.name} name={u.archive.name} bytes={u.archive.size} vouch={u.openpgp} state={states[u.archive.name]} root={root} />
            ))}
          </ul>
        ) : null}
        {left.map((l) => (
          <Callout key={l.file.name} kind="warning" title={l.file.name}>
            {l.why}
          </Callout>
        ))}
        <div className={dialog.buttons}>
          {finished ? (
            <Button onClick={close}>Done</Button>
          ) : (
            <>
              <Button variant="default" onClick={close}>
                Cancel
              </Button>
              <ReasonButton loading={busy} reason={todo.length === 0 ? "Choose archives first." : null} onClick={() => void push()}>
                Push {plural(todo.length, "package")}
              </ReasonButton>
            </>
          )}
        </div>
      </div>
    </Modal>
  );
}

function DropZone({ onFiles, hint }: { onFiles: (files: File[]) => void; hint: string }) {
  const [above, setAbove] = useState(false);
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: dropping is another way to what its button does
    <div
      className={classes.zone}
      data-above={above || undefined}
      onDragOver={(e) => {
        e.preventDefault();
        setAbove(true);
      }}
      onDragLeave={() => setAbove(false)}
      onDrop={(e) => {
        e.preventDefault();
        setAbove(false);
        onFiles([...e.dataTransfer.files]);
      }}
    >
      <IconUpload size={24} stroke={1.5} aria-hidden />
      <span>
        Drop archives here, or{" "}
        <FileButton multiple onChange={onFiles} inputProps={{ "aria-label": "Archives and signatures" }}>
          {(props) => (
            <button type="button" className={classes.choose} data-autofocus {...props}>
              choose files
            </button>
          )}
        </FileButton>
      </span>
      <span className={classes.hint}>{hint}</span>
    </div>
  );
}

function Row({ name, bytes, vouch, state, root }: { name: string; bytes: number; vouch?: File; state?: State; root: boolean }) {
  return (
    <li className={classes.row}>
      <span className={`mono ${classes.fileName}`}>{name}</span>
      <span className={classes.hint}>{size(bytes)}</span>
      {!state ? (
        <Badge tone={vouch ? "ok" : root ? "away" : "wait"}>{vouch ? "With its signature" : root ? "Named by the targets file" : "No signature chosen"}</Badge>
      ) : null}
      {state && "share" in state ? <Progress className={classes.progress} value={state.share * 100} aria-label={`Upload of ${name}`} /> : null}
      {state && "done" in state ? <Badge tone="ok">Pushed</Badge> : null}
      {state && "error" in state ? <Badge tone="bad">Refused</Badge> : null}
      {state && "error" in state ? (
        <span className={classes.error} role="alert">
          {state.error}
        </span>
      ) : null}
    </li>
  );
}
