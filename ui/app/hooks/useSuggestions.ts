import { useDebouncedValue } from "@mantine/hooks";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { suggestionsQuery } from "~/api/queries";
import type { QuerySuggestion } from "~/api/types";
import { byteAt, bytesOf, MAX_QUERY_BYTES, type Written } from "~/util/kql";

/** So long a pause in the typing, and the server is asked: under it each letter would ask. */
export const TYPING_PAUSE_MS = 150;

const NONE: QuerySuggestion[] = [];

export interface Suggestions {
  items: QuerySuggestion[];
  /** False while the items are for an earlier text: their places are then not those of this one. */
  fresh: boolean;
}

/** useSuggestions is how the query may go on at its cursor. The items before stay until the next are there. */
export function useSuggestions({ text, cursor }: Written, wanted: boolean): Suggestions {
  const now = useMemo(() => ({ q: text, at: byteAt(text, cursor) }), [text, cursor]);
  const [asked] = useDebouncedValue(now, TYPING_PAUSE_MS);
  const answer = useQuery({
    ...suggestionsQuery(asked.q, asked.at),
    enabled: wanted && bytesOf(asked.q) <= MAX_QUERY_BYTES,
    placeholderData: keepPreviousData,
  });
  return {
    items: answer.data ?? NONE,
    fresh: answer.isSuccess && !answer.isPlaceholderData && asked.q === now.q && asked.at === now.at,
  };
}
