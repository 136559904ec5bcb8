package fleet

// The types of events. A type is never removed and never gets another meaning: webhooks and readers
// of the stream know it. The list of types in openapi.yaml, and the web UI's, are made from these.
//
// The subject is what the type begins with: an agent, an action, a package and so on.
const (
	EventAgentEnrolled   = "agent.enrolled"
	EventAgentStatus     = "agent.status"
	EventAgentUpgrade    = "agent.upgrade"
	EventAgentWatch      = "agent.watch"
	EventAgentComponent  = "agent.component"
	EventAgentStaged     = "agent.staged"
	EventAgentSource     = "agent.source" // a source of packages has failed on its host
	EventAgentShared     = "agent.shared" // several hosts check in as it, or no longer do
	EventAgentUnenrolled = "agent.unenrolled"
	EventAgentPolicy     = "agent.policy"
	EventActionCreated   = "action.created"
	EventActionResult    = "action.result"
	EventActionCancelled = "action.cancelled"
	EventPackagePushed   = "package.pushed"
	EventPackageDeleted  = "package.deleted"
	EventKeyCreated      = "key.created"
	EventKeyRevoked      = "key.revoked"
	EventPolicyCreated   = "policy.created"
	EventPolicyUpdated   = "policy.updated"
	EventPolicyDeleted   = "policy.deleted"
	// EventFleetChanged is about a declared fleet, by name. Its data has what was done to it.
	EventFleetChanged = "fleet.changed"

	EventTrustPublished = "trust.published" // subject: a file such as 3.targets.json
	EventTrustProblem   = "trust.problem"   // the server cannot sign; data: the reason
	EventTrustRestored  = "trust.restored"  // it can again

	EventRolloutCreated   = "rollout.created"
	EventRolloutStarted   = "rollout.started"
	EventRolloutProgress  = "rollout.progress" // counts, batch, what it waits for
	EventRolloutPaused    = "rollout.paused"
	EventRolloutResumed   = "rollout.resumed"
	EventRolloutCompleted = "rollout.completed"
	EventRolloutFailed    = "rollout.failed"
	EventRolloutCancelled = "rollout.cancelled"
	EventRollbackStarted  = "rollout.rollback_initiated"
	EventRollbackDone     = "rollout.rollback_completed"
	// About one agent of a rollout, which is the subject.
	EventTargetStarted   = "agent.upgrade_started"
	EventTargetCompleted = "agent.upgrade_completed"
	EventTargetPhase     = "agent.upgrade_phase_changed"
	EventIncident        = "incident.changed"

	EventGroupCreated         = "group.created"
	EventGroupStarted         = "group.started"
	EventGroupProgress        = "group.progress" // a member has changed its state
	EventGroupPaused          = "group.paused"
	EventGroupResumed         = "group.resumed"
	EventGroupCompleted       = "group.completed"
	EventGroupPartial         = "group.partial"
	EventGroupFailed          = "group.failed"
	EventGroupCancelled       = "group.cancelled"
	EventGroupRollbackStarted = "group.rollback_initiated"
	EventGroupRolledBack      = "group.rollback_completed"
)
