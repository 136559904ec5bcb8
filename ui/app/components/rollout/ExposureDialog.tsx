import { Group, Stack, Switch, Textarea, TextInput } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { keys } from "~/api/queries";
import { setExposure } from "~/api/rollouts";
import type { ExposureRule } from "~/api/types";
import { formOf, ruleOf, type ExposureForm } from "~/util/guardRails";
import { ConfirmDialog } from "../ConfirmDialog";
import { useToast } from "../Toasts";
import { WhyField } from "./CommandDialog";

export function ExposureDialog({ rule, onClose }: { rule: ExposureRule; onClose: () => void }) {
  const client = useQueryClient();
  const toast = useToast();
  const [form, setForm] = useState<ExposureForm>(() => formOf(rule));
  const [why, setWhy] = useState("");
  const set = (change: Partial<ExposureForm>) => setForm((old) => ({ ...old, ...change }));
  const { rule: wanted, errors } = ruleOf(form);
  const save = useMutation({
    mutationFn: () => setExposure(wanted!, why.trim()),
    onSuccess: () => {
      toast({ kind: "done", title: wanted!.enabled ? "Exposure limit set" : "Exposure limit disabled" });
      void client.invalidateQueries({ queryKey: keys.exposure });
      void client.invalidateQueries({ queryKey: keys.rollouts });
      onClose();
    },
  });
  return (
    <ConfirmDialog
      title="Exposure limit"
      confirm="Set limit"
      keep="Dismiss"
      harmless
      reason={wanted ? null : "Correct the marked fields first."}
      busy={save.isPending}
      error={save.error}
      onConfirm={() => save.mutate()}
      onClose={onClose}
    >
      <Stack gap="sm">
        <Switch label="Limit how far a new version may spread" checked={form.enabled} onChange={(e) => set({ enabled: e.currentTarget.checked })} />
        <Group grow align="flex-start">
          <TextInput label="Percent of the fleet" inputMode="decimal" value={form.percent} error={errors.percent} onChange={(e) => set({ percent: e.currentTarget.value })} />
          <TextInput label="Healthy agent-hours" description="After these the limit no longer applies" inputMode="decimal" inputWrapperOrder={["label", "input", "description", "error"]} value={form.hours} error={errors.hours} onChange={(e) => set({ hours: e.currentTarget.value })} />
        </Group>
        <Textarea label="Within each value of a label" description="A label and a percent on each line, such as “site 20”" autosize minRows={2} value={form.per} error={errors.per} onChange={(e) => set({ per: e.currentTarget.value })} />
        <WhyField value={why} onChange={setWhy} />
      </Stack>
    </ConfirmDialog>
  );
}
