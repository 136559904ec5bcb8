/** Short names for the generated types. */
import type { components } from "./__generated__/admin";

type Schemas = components["schemas"];

export type Agent = Schemas["Agent"];
export type AgentList = Schemas["AgentList"];
export type AgentStatus = Schemas["AgentStatus"];
export type AgentComponent = Schemas["Component"];
export type ComponentSummary = Schemas["ComponentSummary"];
export type PolicyComponent = Schemas["PolicyComponent"];
export type UpgradeState = Schemas["UpgradeState"];
export type UpgradeDetails = Schemas["UpgradeDetails"];
export type UpgradePreview = Schemas["UpgradePreview"];
export type UpgradePreviewItem = Schemas["UpgradePreviewItem"];
export type RollbackPreview = Schemas["RollbackPreview"];
export type RollbackPreviewItem = Schemas["RollbackPreviewItem"];
export type UnenrollPreview = Schemas["UnenrollPreview"];
export type UnenrollPreviewItem = Schemas["UnenrollPreviewItem"];
export type Watch = Schemas["Watch"];
export type ActionStatus = Schemas["ActionStatus"];
export type Package = Schemas["Package"];
export type PublisherKey = Schemas["PublisherKey"];
export type AdminKey = Schemas["AdminKey"];
export type EnrollmentKey = Schemas["EnrollmentKey"];
export type QuerySuggestion = Schemas["QuerySuggestion"];
export type Policy = Schemas["Policy"];
export type FleetEvent = Schemas["Event"];
export type Server = Schemas["Server"];
export type KnownServer = Schemas["KnownServer"];
export type Session = Schemas["Session"];

export type Rollout = Schemas["Rollout"];
export type RolloutState = Schemas["RolloutState"];
export type Group = Schemas["RolloutGroup"];
export type GroupStatus = Schemas["GroupStatus"];
export type GroupState = Schemas["GroupState"];
export type GroupMember = Schemas["GroupMember"];
export type GroupMemberState = Schemas["GroupMemberState"];
export type GroupProgress = Schemas["GroupProgress"];
export type GroupPreview = Schemas["GroupPreview"];
export type GroupPlan = Schemas["GroupPlan"];
export type Plan = Schemas["Plan"];

/** An object of kind Fleet, in the shape of those of Kubernetes. */
export type Fleet = Schemas["Fleet"];
export type FleetList = Schemas["FleetList"];
export type FleetCondition = Schemas["FleetCondition"];
export type FleetRollout = Schemas["FleetRollout"];
export type FleetDiff = Schemas["FleetDiff"];
export type FleetPreview = Schemas["FleetPreview"];
export type FleetHistory = Schemas["FleetHistory"];
export type FleetChange = Schemas["FleetChange"];

export type Stop = Schemas["Stop"];
export type StopKind = Stop["kind"];
export type Batch = Schemas["Batch"];
export type Counts = Schemas["Counts"];
export type Wait = Schemas["Wait"];
export type Decision = Schemas["Decision"];
export type Target = Schemas["Target"];
export type TargetState = Schemas["TargetState"];
export type Preview = Schemas["RolloutPreview"];
export type PreviewTarget = Schemas["PreviewTarget"];
export type ConfigPreviewItem = Schemas["ConfigPreviewItem"];
export type PreviewBatch = Schemas["PreviewBatch"];
export type SkippedAgent = Schemas["SkippedAgent"];
export type Coverage = Schemas["Coverage"];
export type Drift = Schemas["Drift"];
export type DriftItem = Schemas["DriftItem"];
export type AuditEntry = Schemas["AuditEntry"];
export type Explanation = Schemas["Explanation"];
export type Exposure = Schemas["Exposure"];
export type ExposureRule = Schemas["ExposureRule"];
export type Freeze = Schemas["Freeze"];
export type Incident = Schemas["Incident"];
