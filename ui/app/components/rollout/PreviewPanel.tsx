import type { Preview } from "~/api/types";
import { shortHash } from "~/util/rollout/preview";
import { exactWithZone } from "~/util/time";
import { CopyIcon } from "../base/CopyBlock";
import { Section } from "../base/Page";
import { PlanPreview } from "../plan/PlanPreview";
import { Configs } from "./Configs";
import classes from "./Preview.module.css";
import { Skipped } from "./Skipped";

/** What a draft would do. It is stored: a start sends its hash, and its configuration files can be read. */
export function PreviewPanel({ preview: p }: { preview: Preview }) {
  return (
    <div className={classes.stack}>
      <Section title="Preview">
        <PlanPreview
          preview={p}
          more={
            <>
              <span>
                Previewed <b>{exactWithZone(p.at)}</b>
              </span>
              <span>
                Hash{" "}
                <b className="mono" title={p.hash}>
                  {shortHash(p.hash)}…
                </b>{" "}
                <CopyIcon text={p.hash} label="Copy the preview's hash" />
              </span>
            </>
          }
        />
      </Section>
      <Configs preview={p} />
      <Skipped preview={p} />
    </div>
  );
}
