import { Button, Text } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { IconEye } from "@tabler/icons-react";
import { useMemo, useState, type ReactNode } from "react";
import { ApiError } from "~/api/client";
import { serverFault, type Fault, type Parsed } from "~/util/planYaml";
import { isOwned, takeOverOf, whyNotTakeOver } from "~/util/owned";
import { plural, sentence } from "~/util/words";
import classes from "~/pages/RolloutsPage.module.css";
import { Loading, Panel } from "../Blocks";
import { Callout } from "../Callout";
import { ReasonButton } from "../ReasonButton";
import { TakeOver } from "../TakeOver";
import { PlanEditor } from "./PlanEditor";
import board from "./Rollout.module.css";

interface Props<P, D> {
  /** The initial text. */
  example: string;
  parse: (text: string) => Parsed<P>;
  /** With the name of the fleet that agents belong to, if the operator takes them over. */
  create: (plan: P, takeOver?: string) => Promise<D>;
  onCreated: (draft: D) => void;
  /** Previews a plan that is not stored; without it only drafts can be previewed. */
  preview?: (plan: P) => Promise<ReactNode>;
  /** Creates the same draft. */
  command: string;
  /** Beside the editor until there is a preview. */
  children: ReactNode;
}

/** Creates a draft from a plan in YAML. Errors, the browser's and the server's, are shown at their fields. */
export function NewPlan<P, D>({ example, parse, create, onCreated, preview: dryRun, command, children }: Props<P, D>) {
  const [typed, setTyped] = useState<string | null>(null);
  const [owner, setOwner] = useState("");
  const text = typed ?? example;
  const parsed = useMemo(() => parse(text), [parse, text]);

  // The preview has the text that it is for, to show when the text has changed since.
  const preview = useMutation({ mutationFn: async (of: string) => ({ of, shown: await dryRun!(parse(of).plan!) }) });
  const draft = useMutation({ mutationFn: (of: string) => create(parse(of).plan!, takeOverOf(owner)), onSuccess: onCreated });

  const refused = [draft, preview].find((m) => m.isError && m.variables === text)?.error;
  const atField = refused instanceof ApiError && refused.statusCode === 400 ? serverFault(text, refused.message) : null;
  const faults: Fault[] = parsed.faults.length > 0 ? parsed.faults : atField ? [atField] : [];
  const wrong = parsed.faults.length > 0 ? `The plan has ${plural(parsed.faults.length, "error")}, listed below it.` : null;
  const old = preview.data && preview.data.of !== text;
  return (
    <div className={board.sides}>
      <section aria-label="Plan">
        <PlanEditor text={text} faults={faults} onChange={setTyped} />
        <div className={classes.actions}>
          {dryRun ? (
            <ReasonButton leftSection={<IconEye size={16} aria-hidden />} variant="default" reason={wrong} loading={preview.isPending} onClick={() => preview.mutate(text)}>
              {preview.data ? "Preview again" : "Preview"}
            </ReasonButton>
          ) : null}
          <ReasonButton reason={wrong ?? whyNotTakeOver(refused, owner)} loading={draft.isPending} onClick={() => draft.mutate(text)}>Create draft…</ReasonButton>
          {typed !== null && typed !== example ? <Button variant="subtle" color="gray" onClick={() => setTyped(null)}>Reset to the example</Button> : null}
        </div>
        <Text size="xs" c="dimmed">The same file works on the command line: <span className="mono">{command}</span></Text>
      </section>
      <section aria-label={dryRun ? "Preview" : undefined}>
        <TakeOver error={refused} typed={owner} onType={setOwner} />
        {refused && !atField && !isOwned(refused) ? <div className={classes.refused}><Callout kind="error" title="The server refused the plan">{refused instanceof Error ? sentence(refused.message) : null}</Callout></div> : null}
        {old ? <Callout kind="info">The plan was changed after this preview. Preview again to see what it would do now.</Callout> : null}
        {preview.isPending && !preview.data ? <Panel><Loading rows={4} /></Panel> : null}
        {preview.data ? <div data-old={old || undefined} style={{ marginTop: old ? 12 : 0 }}>{preview.data.shown}</div> : null}
        {preview.isIdle ? children : null}
      </section>
    </div>
  );
}
