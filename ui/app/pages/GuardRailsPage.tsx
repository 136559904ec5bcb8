/** The limits that apply to every rollout, whatever its plan. */
import { Button } from "@mantine/core";
import { useState } from "react";
import { PageHead } from "~/components/base/Page";
import { ExposureBudget } from "~/components/guardrail/ExposureBudget";
import { Freezes } from "~/components/guardrail/Freezes";
import { Locks } from "~/components/guardrail/Locks";
import classes from "./Admin.module.css";

export function GuardRailsPage() {
  const [adding, setAdding] = useState(false);
  return (
    <>
      <PageHead title="Guard rails" docs="rollouts" sub="Limits that apply to every rollout and every order, whatever its plan says.">
        <Button onClick={() => setAdding(true)}>Add freeze…</Button>
      </PageHead>
      <div className={classes.stack}>
        <Freezes adding={adding} onAdded={() => setAdding(false)} />
        <ExposureBudget />
        <Locks />
      </div>
    </>
  );
}
