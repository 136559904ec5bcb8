import { useEffect, useState } from "react";

/** usePlanText keeps what is typed for a page in this tab, so that a reload does not lose it. forget drops it. */
export function usePlanText(page: string, initial: string): { text: string; write: (text: string) => void; typed: boolean; forget: () => void } {
  const key = `muster.text.${page}`;
  const [kept, setKept] = useState<{ of: string; text: string } | null>(() => read(key));
  // What was typed for another link is not what this one asks for.
  const typed = kept !== null && kept.of === initial && kept.text !== initial;
  const text = typed ? kept.text : initial;
  useEffect(() => {
    if (typed) sessionStorage.setItem(key, JSON.stringify({ of: initial, text }));
  }, [key, typed, initial, text]);
  return {
    text,
    typed,
    write: (next) => setKept({ of: initial, text: next }),
    forget: () => {
      sessionStorage.removeItem(key);
      setKept(null);
    },
  };
}

function read(key: string): { of: string; text: string } | null {
  try {
    return JSON.parse(sessionStorage.getItem(key) ?? "null") as { of: string; text: string } | null;
  } catch {
    return null;
  }
}
