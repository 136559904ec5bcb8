import { useDebouncedValue } from "@mantine/hooks";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { suggestionsQuery } from "~/api/queries";
import type { QuerySuggestion } from "~/api/types";
import { byteAt, bytesOf, MAX_QUERY_BYTES, type Written } from "~/util/kql";

/** How long typing must pause before the server is asked, so that not every letter is a request. */
export const TYPING_PAUSE_MS = 150;

const NONE: QuerySuggestion[] = [];

export interface Suggestions {
  items: QuerySuggestion[];
  /** False while the items are for an earlier text: their positions do not fit this one. */
  fresh: boolean;
}

/** useSuggestions returns the completions of a query at its cursor. The previous items stay until the next arrive. */
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
