/** Adds tags to the selected hosts, and removes others. */
import { TagsInput } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { changeTags, orderCountQuery, tagsQuery } from "~/api/bulk";
import { Dialog } from "~/components/base/Dialog";
import { type Chosen, countOf } from "~/util/agents/chosen";
import { plural } from "~/util/words";
import classes from "../upgrade/OrderPreview.module.css";
import { OrderWarnings } from "./OrderWarnings";
import { useOrdered } from "./useOrdered";

/** The API takes ten of each. */
const MOST = 10;

interface Props {
  chosen: Chosen;
  onClose: () => void;
  onDone?: () => void;
}

export function TagDialog({ chosen, onClose, onDone }: Props) {
  const ordered = useOrdered(onClose, onDone);
  const tags = useQuery(tagsQuery);
  const counted = useQuery(orderCountQuery("tags", chosen));
  const [add, setAdd] = useState<string[]>([]);
  const [remove, setRemove] = useState<string[]>([]);
  const hosts = plural(counted.data?.count ?? countOf(chosen), "host");
  const save = useMutation({
    mutationFn: () => changeTags(chosen, { add, remove }),
    onSuccess: (id) => ordered(`The tags of ${hosts} are changed`, id),
  });
  const reason = counted.isError
    ? "The hosts could not be counted."
    : counted.data === undefined
      ? "The server counts the hosts."
      : counted.data.count === 0
        ? "No host is left."
        : add.length + remove.length === 0
          ? "Name a tag first."
          : null;
  return (
    <Dialog
      title={`Change the tags of ${hosts}?`}
      confirm={`Change tags of ${hosts}`}
      reason={reason}
      busy={save.isPending}
      error={save.error ?? counted.error}
      onConfirm={() => save.mutate()}
      onClose={onClose}
    >
      <div className={classes.form}>
        <TagsInput
          size="xs"
          label="Add"
          description="Confirm each with Enter"
          data-autofocus
          maxTags={MOST}
          data={tags.data?.slice(0, 500) ?? []}
          limit={20}
          acceptValueOnBlur
          value={add}
          onChange={setAdd}
        />
        <TagsInput
          size="xs"
          label="Remove"
          description="Hosts without the tag stay as they are"
          maxTags={MOST}
          data={tags.data?.slice(0, 500) ?? []}
          limit={20}
          acceptValueOnBlur
          value={remove}
          onChange={setRemove}
        />
        <OrderWarnings of={counted.data} />
      </div>
    </Dialog>
  );
}
