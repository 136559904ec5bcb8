/** The two lists of what runs: hosts, and their components. */
import { SubNav } from "../base/SubNav";

export const FleetNav = () => (
  <SubNav
    label="Hosts and components"
    pages={[
      { to: "/agents", label: "Hosts" },
      { to: "/components", label: "Components" },
    ]}
  />
);
