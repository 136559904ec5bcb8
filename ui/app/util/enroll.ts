/** The command that enrols a host, to be run in the folder of an unpacked agent package. */
import type { Server } from "~/api/types";
import { shellQuote } from "./words";

export function enrollCommand(server: Pick<Server, "agent_url" | "ca_pin" | "publisher_keys" | "trust_root">, token: string): string {
  const flags = [
    ["--url", server.agent_url],
    ["--token", token],
    ["--ca-pin", server.ca_pin],
    // With the publishers' root a host trusts no single key.
    ...(server.trust_root ? [["--trust-root", server.trust_root]] : server.publisher_keys.map((key) => ["--trust-key", key])),
  ];
  return ["sudo ./muster-agent install", ...flags.map(([flag, value]) => `  ${flag} ${shellQuote(value!)}`)].join(" \\\n");
}
