/** Facets of a list: the values of some fields with exact counts of the server; each adds a filter or removes it. */
import type { Facet } from "~/api/types";
import { Check } from "./Check";
import classes from "./FacetList.module.css";

interface Props {
  facets: readonly Facet[];
  /** Field names as headings. */
  titles: Record<string, string>;
  /** The word for a value without a label. */
  valueWord?: (field: string, value: string) => string;
  chosen: Readonly<Record<string, readonly string[]>>;
  onToggle: (field: string, value: string) => void;
}

export function FacetList({ facets, titles, valueWord = (_, v) => v, chosen, onToggle }: Props) {
  return (
    <div className={classes.list}>
      {facets
        .filter((f) => titles[f.field] && (f.values.length > 0 || chosen[f.field]?.length))
        .map((f) => {
          const on = chosen[f.field] ?? [];
          const missing = on.filter((v) => !f.values.some((x) => x.value === v)).map((value) => ({ value, count: 0, label: undefined }));
          return (
            <fieldset key={f.field} className={classes.group}>
              <legend>{titles[f.field]}</legend>
              {[...f.values, ...missing].map((v) => (
                <label key={v.value} className={classes.value} data-on={on.includes(v.value) || undefined}>
                  <Check
                    checked={on.includes(v.value)}
                    onChange={() => onToggle(f.field, v.value)}
                    aria-label={`${titles[f.field]} ${v.label ?? valueWord(f.field, v.value) ?? ""}, ${v.count.toLocaleString()}`}
                  />
                  <span className={classes.word}>
                    {v.value === "" ? <em>{valueWord(f.field, "") || "none"}</em> : (v.label ?? valueWord(f.field, v.value))}
                  </span>
                  <span className={classes.count}>{v.count.toLocaleString()}</span>
                </label>
              ))}
              {f.other > 0 ? <span className={classes.other}>{f.other.toLocaleString()} with other values</span> : null}
            </fieldset>
          );
        })}
    </div>
  );
}
