package fleet

import "time"

// RolloutGroup upgrades several things one after the other, such as a database before the
// programs that use it. Each member is a rollout of its own. One server at a time works on
// groups; operators change them through State, RollingBack and Resume. Revision guards
// both.
type RolloutGroup struct {
	ID    string     `json:"id"`
	State GroupState `json:"state"`
	Plan  GroupPlan  `json:"plan"`
	// In the order of the plan
	Members []GroupMember `json:"members"`
	// Covers the previews of all members; the group was started with it
	Hash        string     `json:"hash,omitempty"`
	Generation  int64      `json:"generation"`             // increases with every operator change
	RollingBack *Decision  `json:"rolling_back,omitempty"` // why the members are rolled back, the last one first; nil: they are not
	Resume      *Decision  `json:"resume,omitempty"`       // the order to resume the rollout of the current member too, until it is carried out
	Stop        *GroupStop `json:"stop,omitempty"`         // nil: it is neither paused, nor has it ended other than completed

	CreatedAt time.Time  `json:"created_at"`
	CreatedBy string     `json:"created_by"`
	StartedAt *time.Time `json:"started_at,omitempty"`
	StartedBy string     `json:"started_by,omitempty"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
	Revision  int64      `json:"-"`
}

// GroupPlan is what a group does.
type GroupPlan struct {
	Name          string        `json:"name"`
	Description   string        `json:"description,omitempty"`
	FailurePolicy FailurePolicy `json:"failure_policy"` // no default: what happens to the members that are done is the decision that a group exists for
	// The version of each member, by name
	DesiredVersions map[string]string `json:"desired_versions" example:"{app: 3.0.0, db: 1.2.0}"`
	// At most 20, in the order of their upgrades
	Members []GroupMemberPlan `json:"members"`
	// Start later members with the fleet as it is then; default: pause if it is not as previewed
	AcceptDrift bool `json:"accept_drift,omitempty"`
}

// GroupMemberPlan is one member of a plan.
type GroupMemberPlan struct {
	// Unique in the group, at most 60 lower-case letters, digits, dots, dashes and underscores
	Name string `json:"name"`
	Plan Plan   `json:"plan"`
	// How long the group waits after this member
	Soak Duration `json:"soak,omitempty" zero:"allowed" example:"1h"`
}

// FailurePolicy decides what a group does when a member fails.
type FailurePolicy string

// Values of FailurePolicy.
const (
	// PartialOK keeps what is done and starts no more.
	PartialOK FailurePolicy = "partial_ok"
	// RollbackAll rolls back the member and all before it, in reverse order.
	RollbackAll FailurePolicy = "rollback_all"
	// ManualPolicy pauses the group for an operator, who resumes, skips or rolls back.
	ManualPolicy FailurePolicy = "manual"
)

// GroupState is the state of a group.
//
//	draft ─► running ⇄ paused ─► completed | partial | failed
//	            └─────────┴─► cancelling ─► cancelled
//	            └─────────┴─► rolling_back ─► rolled_back | failed
type GroupState string

// Values of GroupState. A group is partial if some members completed and others did not.
const (
	GroupDraft       GroupState = "draft"
	GroupRunning     GroupState = "running"
	GroupPaused      GroupState = "paused"
	GroupCancelling  GroupState = "cancelling"
	GroupRollingBack GroupState = "rolling_back"
	GroupCompleted   GroupState = "completed"
	GroupPartial     GroupState = "partial"
	GroupFailed      GroupState = "failed"
	GroupCancelled   GroupState = "cancelled"
	GroupRolledBack  GroupState = "rolled_back"
)

// Active reports whether the group has something left to do.
func (s GroupState) Active() bool {
	switch s {
	case GroupRunning, GroupPaused, GroupCancelling, GroupRollingBack:
		return true
	}
	return false
}

// Ended reports whether the group has ended.
func (s GroupState) Ended() bool { return s != GroupDraft && !s.Active() }

// GroupMember is the state of one member.
type GroupMember struct {
	Name  string           `json:"name"`
	State GroupMemberState `json:"state"`
	// Its rollout, once that has begun
	RolloutID string `json:"rollout_id,omitempty"`
	// Hash of its last preview
	Hash string `json:"hash,omitempty"`
	// An operator accepts that the fleet is not as previewed
	AcceptDrift bool `json:"accept_drift,omitempty"`
	// None of its agents has begun
	NothingBack bool       `json:"nothing_to_roll_back,omitempty"`
	EndedAt     *time.Time `json:"ended_at,omitempty"` // when its rollout ended
	// Why it failed, or could not be rolled back
	Error string `json:"error,omitempty"`
	// The group goes on although the member has failed: its failures are no more than its plan
	// tolerates, or an operator has accepted them
	Tolerated bool `json:"tolerated,omitempty"`
}

// GroupMemberState is the state of a member of a group.
type GroupMemberState string

// Values of GroupMemberState.
const (
	MemberPending        GroupMemberState = "pending"
	MemberRunning        GroupMemberState = "running" // its rollout is active
	MemberCompleted      GroupMemberState = "completed"
	MemberFailed         GroupMemberState = "failed"
	MemberSkipped        GroupMemberState = "skipped"   // left out by an operator
	MemberCancelled      GroupMemberState = "cancelled" // ended with the group
	MemberRolledBack     GroupMemberState = "rolled_back"
	MemberRollbackFailed GroupMemberState = "rollback_failed"
	MemberKept           GroupMemberState = "kept" // left out of the rollback by an operator
)

// GroupStop is why a group is paused or has ended.
type GroupStop struct {
	Kind GroupStopKind `json:"kind"`
	Text string        `json:"text"` // a sentence
	// muster, or the operator
	By string    `json:"by"`
	At time.Time `json:"at"`
	// The member that stopped it
	Member string `json:"member,omitempty"`
	// The rollout of the current member pauses at once, and not after its batch
	AtOnce bool `json:"at_once,omitempty"`
}

// GroupStopKind classifies stops by what is needed to resume.
type GroupStopKind string

// Values of GroupStopKind.
const (
	GroupStopOperator GroupStopKind = "operator"
	GroupStopFailure  GroupStopKind = "failure" // a member has failed
	GroupStopDrift    GroupStopKind = "drift"   // the fleet is not as previewed
	GroupStopRefused  GroupStopKind = "refused" // a rollout could not be started or changed
)

// Gate reports whether resuming requires a reason.
func (k GroupStopKind) Gate() bool { return k == GroupStopFailure || k == GroupStopDrift }

// GroupPreview is what a group would do. Its members' previews are as of now: a later
// member may find another fleet.
type GroupPreview struct {
	GroupID string               `json:"group_id"`
	Hash    string               `json:"hash" example:"sha256:…"`
	At      time.Time            `json:"at"`
	Members []GroupMemberPreview `json:"members"`
	// The sum over the members and their soaks
	AtLeast Duration `json:"at_least" example:"1h0m0s"`
	// The sum over the members and their soaks
	Estimate Duration `json:"estimate"`
}

// GroupMemberPreview summarises the preview of a member.
type GroupMemberPreview struct {
	Name     string   `json:"name"`
	Version  string   `json:"version"`
	Hash     string   `json:"hash"`
	Targets  int      `json:"targets"`
	Skipped  int      `json:"skipped"`
	LeftOut  string   `json:"-"` // the reasons of those skipped, for people
	Batches  int      `json:"batches"`
	Offline  int      `json:"offline"`
	AtLeast  Duration `json:"at_least"`
	Estimate Duration `json:"estimate"`
	Warnings []string `json:"warnings"`
}

// GroupStatus is a group with the progress of its members.
type GroupStatus struct {
	RolloutGroup
	// In the order of the plan
	Progress []GroupProgress `json:"progress"`
	Commands []Command       `json:"commands,omitempty"`
	// What the group waits for or does next; absent once it has ended
	Waiting string `json:"waiting,omitempty"`
	// When the wait ends by itself
	Until *time.Time `json:"until,omitempty"`
}

// GroupProgress is the progress of one member.
type GroupProgress struct {
	Name         string           `json:"name"`
	State        GroupMemberState `json:"state"`
	Version      string           `json:"version"`
	RolloutState RolloutState     `json:"rollout_state,omitempty"` // absent before the rollout exists, as Counts, Stop and Waiting
	Counts       *Counts          `json:"counts,omitempty"`
	Stop         *Stop            `json:"stop,omitempty"`
	Waiting      []Wait           `json:"waiting,omitempty"`
	// The rollout that rolls it back
	RollbackID string `json:"rollback_id,omitempty"`
}

// GroupEventData is the data of an event about a group.
type GroupEventData struct {
	Name          string             `json:"name"`
	FailurePolicy FailurePolicy      `json:"failure_policy"`
	State         GroupState         `json:"state"`
	Seconds       float64            `json:"seconds"` // since the start, up to the end; 0 for a draft
	Members       []GroupEventMember `json:"members"`
	Stop          *GroupStop         `json:"stop,omitempty"`
}

// GroupEventMember is a member in an event.
type GroupEventMember struct {
	Name      string           `json:"name"`
	Version   string           `json:"version"`
	State     GroupMemberState `json:"state"`
	RolloutID string           `json:"rollout_id,omitempty"`
}

// GroupEvent returns an event with the state of a group. The caller sets Actor for an
// operator's command.
func GroupEvent(typ string, g *RolloutGroup, now time.Time) Event {
	d := GroupEventData{
		Name: g.Plan.Name, FailurePolicy: g.Plan.FailurePolicy, State: g.State, Stop: g.Stop, Seconds: secondsBetween(g.StartedAt, g.EndedAt, now),
		Members: make([]GroupEventMember, len(g.Members)),
	}
	for i, m := range g.Members {
		d.Members[i] = GroupEventMember{Name: m.Name, Version: g.Plan.DesiredVersions[m.Name], State: m.State, RolloutID: m.RolloutID}
	}
	return Event{At: now, Type: typ, Subject: g.ID, Data: eventData(d)}
}
