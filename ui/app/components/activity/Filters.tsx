/** The filters of the activity page. */
import { MultiSelect } from "@mantine/core";
import { DraftInput } from "~/components/base/DraftInput";
import { outcomeWord, typeWord } from "~/util/activity/action";
import { ACTION_TYPES, type ActionType, type ActivitySearch, OUTCOMES } from "~/util/activity/activitySearch";
import classes from "./Activity.module.css";

interface Props {
  search: ActivitySearch;
  onChange: (change: ActivitySearch) => void;
}

const TYPES = ACTION_TYPES.map((value) => ({ value, label: typeWord[value] }));
const ENDS = OUTCOMES.map((value) => ({ value, label: outcomeWord[value] }));

export function Filters({ search, onChange }: Props) {
  return (
    <div className={classes.filters} role="search" aria-label="Filter the actions">
      <MultiSelect
        aria-label="What was ordered"
        placeholder={search.type ? undefined : "What was ordered"}
        w={{ base: "100%", xs: 240 }}
        clearable
        data={TYPES}
        value={search.type ?? []}
        onChange={(v) => onChange({ type: v.length > 0 ? (v as ActionType[]) : undefined })}
      />
      <MultiSelect
        aria-label="How it stands"
        placeholder={search.outcome ? undefined : "How it stands"}
        w={{ base: "100%", xs: 220 }}
        clearable
        data={ENDS}
        value={search.outcome ?? []}
        onChange={(v) => onChange({ outcome: v.length > 0 ? (v as ActivitySearch["outcome"]) : undefined })}
      />
      <DraftInput label="Ordered by" placeholder="Ordered by" w={180} value={search.by} onApply={(by) => onChange({ by })} />
    </div>
  );
}
