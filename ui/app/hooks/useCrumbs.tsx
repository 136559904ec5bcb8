/** The breadcrumbs in the top bar, which each page's head sets. */
import { createContext, type ReactNode, useContext, useEffect, useState } from "react";

export interface Crumb {
  label: string;
  to: string;
}

export interface Trail {
  name: string;
  crumbs: readonly Crumb[];
}

const Value = createContext<Trail>({ name: "", crumbs: [] });
const Setter = createContext<(trail: Trail) => void>(() => {});

export function CrumbsProvider({ children }: { children: ReactNode }) {
  const [trail, setTrail] = useState<Trail>({ name: "", crumbs: [] });
  return (
    <Setter value={setTrail}>
      <Value value={trail}>{children}</Value>
    </Setter>
  );
}

export const useTrail = (): Trail => useContext(Value);

export function useCrumbs(name: string, crumbs: readonly Crumb[] = []): void {
  const set = useContext(Setter);
  const path = JSON.stringify(crumbs); // pages pass new arrays with the same contents
  useEffect(() => set({ name, crumbs: JSON.parse(path) as Crumb[] }), [set, name, path]);
}
