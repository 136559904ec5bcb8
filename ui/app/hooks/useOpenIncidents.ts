import { useQuery } from "@tanstack/react-query";
import { incidentsQuery } from "~/api/queries";

/** The number of open incidents; 0 until it is known. */
export function useOpenIncidents(): number {
  const { data } = useQuery(incidentsQuery);
  return data?.items.filter((i) => i.state === "open").length ?? 0;
}
