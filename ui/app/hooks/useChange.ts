import { type QueryKey, useMutation, useQueryClient } from "@tanstack/react-query";
import { toast } from "~/components/base/Toasts";

interface Change<I, T> {
  run: (input: I) => Promise<T>;
  /** The message after it, such as "The key ann is revoked"; without one there is none. */
  done?: string | ((answer: T) => string);
  /** What is read again. */
  stale: readonly QueryKey[];
  after?: (answer: T) => void;
}

/** A change that the operator orders: afterwards there is a message, and the lists that it changed are read again. */
export function useChange<I = void, T = unknown>({ run, done, stale, after }: Change<I, T>) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: run,
    onSuccess: (answer) => {
      if (done) toast({ kind: "done", title: typeof done === "string" ? done : done(answer) });
      for (const queryKey of stale) void client.invalidateQueries({ queryKey });
      after?.(answer);
    },
  });
}
