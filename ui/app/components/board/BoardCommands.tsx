import { useState } from "react";
import type { Rollout } from "~/api/types";
import { boardCommands, commandLabel } from "~/util/board/commandText";
import { CommandBar } from "../base/CommandBar";
import { AdjustDialog } from "./AdjustDialog";
import { CommandDialog } from "./CommandDialog";

/** The commands of a rollout as the server offers them, each with its dialog. */
export function BoardCommands({ rollout: r, failed }: { rollout: Rollout; failed: readonly string[] }) {
  const [name, setName] = useState<string | null>(null);
  const commands = boardCommands(r);
  const asked = commands.find((c) => c.name === name);
  return (
    <>
      <CommandBar commands={commands} words={commandLabel} shown={["approve", "resume"]} onCommand={(c) => setName(c.name)} />
      {asked?.name === "adjust" ? (
        <AdjustDialog rollout={r} asked={asked} onClose={() => setName(null)} />
      ) : asked ? (
        <CommandDialog key={asked.name} rollout={r} asked={asked} failed={failed} onClose={() => setName(null)} />
      ) : null}
    </>
  );
}
