import { Button, Stack, Textarea } from "@mantine/core";
import { IconEye } from "@tabler/icons-react";
import { useMutation } from "@tanstack/react-query";
import { type ReactNode, useMemo, useState } from "react";
import { ApiError } from "~/api/client";
import { ChangedMeanwhile, diffFleet } from "~/api/fleets";
import type { Fleet } from "~/api/types";
import { startsNow } from "~/util/fleet/fleet";
import { fleetFaults, fleetText, parseFleet } from "~/util/fleet/fleetYaml";
import { whyNotReady } from "~/util/plan/planPreview";
import { sentence } from "~/util/words";
import { Callout } from "../base/Callout";
import { Loading } from "../base/Page";
import { ReasonButton } from "../base/ReasonButton";
import { YamlEditor } from "../plan/YamlEditor";
import { DiffView } from "./DiffView";
import classes from "./Fleet.module.css";
import { FleetReview } from "./FleetReview";

interface Props {
  /** The fleet that is changed; undefined: a new one. */
  base?: Fleet;
  /** The initial text. */
  text: string;
  save: (f: Fleet, why: string) => Promise<Fleet>;
  onSaved: (f: Fleet) => void;
  /** Continues with the stored fleet as the base: somebody else has changed it. */
  onRebase?: (fresh: Fleet) => void;
  onCancel?: () => void;
  /** Beside the editor until there is a review. */
  children?: ReactNode;
}

/** A fleet as YAML. What is saved is what was reviewed. Errors, the browser's and the server's, are shown at their fields. */
export function FleetEditor({ base, text: initial, save: store, onSaved, onRebase, onCancel, children }: Props) {
  const [typed, setTyped] = useState<string | null>(null);
  const [why, setWhy] = useState("");
  const text = typed ?? initial;
  const name = base?.metadata.name;
  const parsed = useMemo(() => parseFleet(text, name), [text, name]);

  // The review has the text that it is for, to show when the text has changed since.
  const review = useMutation({ mutationFn: async (of: string) => ({ of, diff: await diffFleet(parseFleet(of, name).plan!) }) });
  const save = useMutation({ mutationFn: (of: string) => store(parseFleet(of, name).plan!, why.trim()), onSuccess: onSaved });

  const refused = [save, review].find((m) => m.isError && m.variables === text)?.error;
  const changed = refused instanceof ChangedMeanwhile ? refused.fresh : null;
  const atFields = refused instanceof ApiError && refused.statusCode === 400 ? fleetFaults(text, refused.message) : [];
  const faults = parsed.faults.length > 0 ? parsed.faults : atFields;
  const wrong = whyNotReady(parsed.faults);
  const old = review.data && review.data.of !== text;
  const same = base && review.data && !old && review.data.diff.changed.length === 0;
  const verb = base ? "Save" : "Create";
  return (
    <div className={classes.editing}>
      <section aria-label="Fleet">
        <div className={classes.editorBody}>
          <YamlEditor what="fleet" text={text} faults={faults} onChange={setTyped} />
        </div>
        <div className={classes.actions}>
          <ReasonButton
            leftSection={<IconEye size={16} aria-hidden />}
            variant={review.data && !old ? "default" : "filled"}
            reason={wrong}
            loading={review.isPending}
            onClick={() => review.mutate(text)}
          >
            {review.data ? "Review again" : "Review changes"}
          </ReasonButton>
          {onCancel ? (
            <Button variant="default" onClick={onCancel}>
              Cancel
            </Button>
          ) : null}
          {!base && typed !== null && typed !== initial ? (
            <Button variant="subtle" color="gray" onClick={() => setTyped(null)}>
              Reset to the example
            </Button>
          ) : null}
        </div>
        <div className={classes.sub}>
          Comments are not stored. The same text works on the command line: <span className="mono">muster apply -f fleet.yaml</span>
        </div>
      </section>
      <section aria-label="Review" className={classes.stack}>
        {refused && atFields.length === 0 && !changed ? (
          <Callout kind="error" title="The server refused the fleet">
            {refused instanceof Error ? sentence(refused.message) : null}
          </Callout>
        ) : null}
        {changed ? (
          <div>
            <Callout kind="error" title="Somebody else has changed this fleet since you opened it. Nothing was saved.">
              <Stack gap="xs" align="flex-start">
                <span>
                  {changed.metadata.uid === base?.metadata.uid
                    ? "This is what they changed:"
                    : "It was deleted, and another one was created with its name. This is how the new one differs:"}
                </span>
                <DiffView before={base ? fleetText(base) : ""} after={fleetText(changed)} label="What somebody else changed" />
                <span>If you continue, put what they changed into your text, or the review shows it as removed.</span>
                <Button
                  size="xs"
                  variant="default"
                  onClick={() => {
                    setTyped(text);
                    save.reset();
                    review.reset();
                    onRebase?.(changed);
                  }}
                >
                  Keep my text and review it again
                </Button>
              </Stack>
            </Callout>
          </div>
        ) : null}
        {old ? (
          <div>
            <Callout kind="info">The text was changed after this review. Review again to see what saving would do now.</Callout>
          </div>
        ) : null}
        {review.isPending && !review.data ? <Loading rows={4} /> : null}
        {review.data && !changed ? (
          <Stack gap="md" data-old={old || undefined}>
            <FleetReview diff={review.data.diff} />
            {old || same ? null : (
              <Stack gap="xs" align="stretch">
                <Textarea
                  label="Reason (optional)"
                  description="The history keeps it."
                  autosize
                  minRows={2}
                  maxRows={6}
                  maxLength={1000}
                  value={why}
                  onChange={(e) => setWhy(e.currentTarget.value)}
                />
                <div>
                  <ReasonButton reason={wrong} loading={save.isPending} onClick={() => save.mutate(text)}>
                    {startsNow(review.data.diff) ? `${verb} fleet and start its rollout` : `${verb} fleet`}
                  </ReasonButton>
                </div>
              </Stack>
            )}
          </Stack>
        ) : null}
        {review.isIdle && !changed ? children : null}
      </section>
    </div>
  );
}
