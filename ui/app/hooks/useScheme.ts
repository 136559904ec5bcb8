import { useSyncExternalStore } from "react";

function subscribe(changed: () => void): () => void {
  const observer = new MutationObserver(changed);
  observer.observe(document.documentElement, { attributes: true, attributeFilter: ["data-mantine-color-scheme"] });
  return () => observer.disconnect();
}

const current = () => document.documentElement.getAttribute("data-mantine-color-scheme") ?? "light";

/** useScheme returns "light" or "dark" once the page has it, so that a canvas can read its colours again. */
export function useScheme(): string {
  return useSyncExternalStore(subscribe, current);
}
