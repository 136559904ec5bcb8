/** How this browser shows the agents table. It is taste, not state of the page, so it is not in the address. */
import { useLocalStorage } from "@mantine/hooks";
import { useMemo } from "react";
import { FIRST_COLUMNS } from "~/util/agents/agentColumns";

export interface TableLook {
  columns: readonly string[];
  setColumns: (columns: string[]) => void;
  density: "compact" | "comfortable";
  setDensity: (density: "compact" | "comfortable") => void;
}

export function useTableLook(): TableLook {
  const [columns, setColumns] = useLocalStorage<string[]>({ key: "muster-agents-columns", defaultValue: [...FIRST_COLUMNS], getInitialValueInEffect: false });
  const [density, setDensity] = useLocalStorage<"compact" | "comfortable">({ key: "muster-density", defaultValue: "compact", getInitialValueInEffect: false });
  return useMemo(() => ({ columns, setColumns, density, setDensity }), [columns, setColumns, density, setDensity]);
}
