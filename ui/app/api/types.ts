/** Short names for the generated types; nothing here adds to them. */
import type { components } from "./__generated__/admin";

type Schemas = components["schemas"];

export type Agent = Schemas["Agent"];
export type AgentList = Schemas["AgentList"];
export type AgentStatus = Schemas["AgentStatus"];
export type AgentComponent = Schemas["Component"];
export type UpgradeState = Schemas["UpgradeState"];
export type UpgradeDetails = Schemas["UpgradeDetails"];
export type UpgradePreview = Schemas["UpgradePreview"];
export type UpgradePreviewItem = Schemas["UpgradePreviewItem"];
export type RollbackPreview = Schemas["RollbackPreview"];
export type RollbackPreviewItem = Schemas["RollbackPreviewItem"];
export type Watch = Schemas["Watch"];
export type ActionStatus = Schemas["ActionStatus"];
export type Package = Schemas["Package"];
export type PublisherKey = Schemas["PublisherKey"];
export type EnrollmentKey = Schemas["EnrollmentKey"];
export type Policy = Schemas["Policy"];
export type FleetEvent = Schemas["Event"];
export type Server = Schemas["Server"];
export type Session = Schemas["Session"];
