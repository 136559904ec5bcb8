/** What follows an order: a message with a link to it, fresh lists, and the dialog closes. */
import { useQueryClient } from "@tanstack/react-query";
import { keys } from "~/api/queries";
import { TextLink } from "~/components/base/TextLink";
import { toast } from "~/components/base/Toasts";

export function useOrdered(onClose: () => void, onDone?: () => void): (title: string, actionId?: string) => void {
  const client = useQueryClient();
  return (title, actionId) => {
    toast({
      kind: "done",
      title,
      body: (
        <TextLink to="/activity" search={{ open: actionId }} size="sm">
          Follow it under Activity
        </TextLink>
      ),
    });
    void client.invalidateQueries({ queryKey: keys.agents });
    void client.invalidateQueries({ queryKey: keys.actions });
    onDone?.();
    onClose();
  };
}
