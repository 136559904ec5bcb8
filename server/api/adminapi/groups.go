package adminapi

import (
	"net/http"
	"time"
)

// The operations of the area groups.
var (
	ListGroups = op[None, RolloutGroupList](Call{
		ID: "listGroups", Method: http.MethodGet, Path: "/api/v1/rollout-groups",
		Area: AreaGroups, Permission: "rollouts.read",
		Summary: "List groups of rollouts, newest first",
		Answer:  "The page",
		Params: []Param{
			page,
			perPage,
		},
	})

	CreateGroup = op[CreateGroupRequest, RolloutGroupItem](Call{
		ID: "createGroup", Method: http.MethodPost, Path: "/api/v1/rollout-groups",
		Area: AreaGroups, Permission: "rollouts.write",
		Summary:     "Create a group as a draft: several rollouts, one after the other",
		Description: "The group does nothing before it is started. Each member is a plan of a rollout, which is created and started when the member before it is done. Unknown keys in the plan are refused.",
		Answer:      "The draft",
	})

	GetGroup = op[None, GroupStatusItem](Call{
		ID: "getGroup", Method: http.MethodGet, Path: "/api/v1/rollout-groups/{groupId}",
		Area: AreaGroups, Permission: "rollouts.read",
		Summary: "Get a group with the progress of its members",
		Answer:  "The group",
	})

	DeleteGroup = op[None, ActionWord](Call{
		ID: "deleteGroup", Method: http.MethodDelete, Path: "/api/v1/rollout-groups/{groupId}",
		Area: AreaGroups, Permission: "rollouts.write",
		Summary: "Delete a draft",
		Answer:  "Deleted",
		Params: []Param{
			{Name: "why", Doc: "For the audit trail"},
		},
	})

	PreviewGroup = op[None, GroupPreviewItem](Call{
		ID: "previewGroup", Method: http.MethodPost, Path: "/api/v1/rollout-groups/{groupId}/preview",
		Area: AreaGroups, Permission: "rollouts.read",
		Summary:     "Preview all members of a draft",
		Description: "Without a body. Start takes the hash, which covers the previews of all members.",
		Answer:      "The preview",
		Unaudited:   true,
	})

	StartGroup = op[StartRolloutRequest, RolloutGroupItem](Call{
		ID: "startGroup", Method: http.MethodPost, Path: "/api/v1/rollout-groups/{groupId}/start",
		Area: AreaGroups, Permission: "rollouts.start",
		Summary:     "Start a draft exactly as previewed",
		Description: "Refused with 409 and the code group_drift if the fleet has changed since the preview. accept_drift starts the group with the fleet as it is now.",
		Answer:      "The group",
	})

	PauseGroup = op[PauseRolloutRequest, RolloutGroupItem](Call{
		ID: "pauseGroup", Method: http.MethodPost, Path: "/api/v1/rollout-groups/{groupId}/pause",
		Area: AreaGroups, Permission: "rollouts.control",
		Summary:      "Start no more members, and pause the rollout of the current one",
		Description:  "The rollout pauses after its batch or, with now, at once.",
		OptionalBody: true,
		Answer:       "The group",
	})

	ResumeGroup = op[WhyRequest, RolloutGroupItem](Call{
		ID: "resumeGroup", Method: http.MethodPost, Path: "/api/v1/rollout-groups/{groupId}/resume",
		Area: AreaGroups, Permission: "rollouts.control",
		Summary:      "Resume a paused group, and the rollout of its current member",
		Description:  "After a failure or drift, which it accepts, why is required.",
		OptionalBody: true,
		Answer:       "The group",
	})

	CancelGroup = op[WhyRequest, RolloutGroupItem](Call{
		ID: "cancelGroup", Method: http.MethodPost, Path: "/api/v1/rollout-groups/{groupId}/cancel",
		Area: AreaGroups, Permission: "rollouts.control",
		Summary:      "Cancel a group; upgrades under way still end",
		OptionalBody: true,
		Answer:       "The group",
	})

	RollbackGroup = op[WhyRequest, RolloutGroupItem](Call{
		ID: "rollbackGroup", Method: http.MethodPost, Path: "/api/v1/rollout-groups/{groupId}/rollback",
		Area: AreaGroups, Permission: "rollouts.rollback",
		Summary:      "Roll back all members that have begun, the last one first",
		Description:  "Also after the group has ended.",
		OptionalBody: true,
		Answer:       "The group",
	})

	SkipGroupMember = op[SkipMemberRequest, RolloutGroupItem](Call{
		ID: "skipGroupMember", Method: http.MethodPost, Path: "/api/v1/rollout-groups/{groupId}/skip",
		Area: AreaGroups, Permission: "rollouts.control",
		Summary:     "Leave a member out",
		Description: "Its rollout is cancelled if it is under way. During a rollback, a member that stopped the rollback keeps its version. why is required if the member had stopped the group.",
		Answer:      "The group",
	})
)

// GroupPlan is what a group of rollouts does.
type GroupPlan struct {
	Name          string        `json:"name"`
	Description   *string       `json:"description,omitempty"`
	FailurePolicy FailurePolicy `json:"failure_policy"`
	// The version of each member, by name
	DesiredVersions map[string]string `json:"desired_versions" example:"{app: 3.0.0, db: 1.2.0}"`
	// At most 20, in the order of their upgrades
	Members []GroupMemberPlan `json:"members"`
	// Start later members with the fleet as it is then; default: pause if it is not as previewed
	AcceptDrift *bool `json:"accept_drift,omitempty"`
}

// FailurePolicy is what happens when a member fails. partial_ok: what is done stays, and no more is
// started. rollback_all: the member and all before it are rolled back, the last one first. manual: the
// group pauses for an operator, who resumes, skips or rolls back.
type FailurePolicy string

// Values of FailurePolicy.
const (
	PartialOK    FailurePolicy = "partial_ok"
	RollbackAll  FailurePolicy = "rollback_all"
	ManualPolicy FailurePolicy = "manual"
)

// GroupMemberPlan is a member of a group: the plan of one rollout.
type GroupMemberPlan struct {
	// Unique in the group, at most 60 lower-case letters, digits, dots, dashes and underscores
	Name string `json:"name"`
	Plan Plan   `json:"plan"`
	// How long the group waits after this member
	Soak *string `json:"soak,omitempty" example:"1h"`
}

// GroupState is the state of a group.
type GroupState string

// Values of GroupState.
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

// GroupMemberState is the state of a member of a group.
type GroupMemberState string

// Values of GroupMemberState.
const (
	MemberPending        GroupMemberState = "pending"
	MemberRunning        GroupMemberState = "running"
	MemberCompleted      GroupMemberState = "completed"
	MemberFailed         GroupMemberState = "failed"
	MemberSkipped        GroupMemberState = "skipped"
	MemberCancelled      GroupMemberState = "cancelled"
	MemberRolledBack     GroupMemberState = "rolled_back"
	MemberRollbackFailed GroupMemberState = "rollback_failed"
	MemberKept           GroupMemberState = "kept"
)

// RolloutGroup is a list of rollouts that run one after the other.
type RolloutGroup struct {
	Id    string     `json:"id"`
	State GroupState `json:"state"`
	Plan  GroupPlan  `json:"plan"`
	// In the order of the plan
	Members []GroupMember `json:"members"`
	// Covers the previews of all members; the group was started with it
	Hash        *string    `json:"hash,omitempty"`
	Generation  int64      `json:"generation"`
	RollingBack *Decision  `json:"rolling_back,omitempty"`
	Resume      *Decision  `json:"resume,omitempty"`
	Stop        *GroupStop `json:"stop,omitempty"`
	CreatedAt   time.Time  `json:"created_at"`
	CreatedBy   string     `json:"created_by"`
	StartedAt   *time.Time `json:"started_at,omitempty"`
	StartedBy   *string    `json:"started_by,omitempty"`
	EndedAt     *time.Time `json:"ended_at,omitempty"`
}

// GroupStatus is a group with the progress of its members.
type GroupStatus struct {
	Id    string     `json:"id"`
	State GroupState `json:"state"`
	Plan  GroupPlan  `json:"plan"`
	// In the order of the plan
	Members []GroupMember `json:"members"`
	// Covers the previews of all members; the group was started with it
	Hash        *string    `json:"hash,omitempty"`
	Generation  int64      `json:"generation"`
	RollingBack *Decision  `json:"rolling_back,omitempty"`
	Resume      *Decision  `json:"resume,omitempty"`
	Stop        *GroupStop `json:"stop,omitempty"`
	CreatedAt   time.Time  `json:"created_at"`
	CreatedBy   string     `json:"created_by"`
	StartedAt   *time.Time `json:"started_at,omitempty"`
	StartedBy   *string    `json:"started_by,omitempty"`
	EndedAt     *time.Time `json:"ended_at,omitempty"`
	// In the order of the plan
	Progress []GroupProgress `json:"progress"`
	// What the group waits for or does next; absent once it has ended
	Waiting *string `json:"waiting,omitempty"`
	// When the wait ends by itself
	Until    *time.Time `json:"until,omitempty"`
	Commands *[]Command `json:"commands,omitempty"`
}

// GroupMember is one rollout of a group.
type GroupMember struct {
	Name  string           `json:"name"`
	State GroupMemberState `json:"state"`
	// Its rollout, once that has begun
	RolloutId *string `json:"rollout_id,omitempty"`
	// Hash of its last preview
	Hash *string `json:"hash,omitempty"`
	// An operator accepts that the fleet is not as previewed
	AcceptDrift *bool `json:"accept_drift,omitempty"`
	// None of its agents has begun
	NothingToRollBack *bool      `json:"nothing_to_roll_back,omitempty"`
	EndedAt           *time.Time `json:"ended_at,omitempty"`
	// Why it failed, or could not be rolled back
	Error *string `json:"error,omitempty"`
	// The group goes on although the member has failed: its failures are no more than its plan
	// tolerates, or an operator has accepted them
	Tolerated *bool `json:"tolerated,omitempty"`
}

// GroupStop is why the group is paused, or has ended other than completed.
type GroupStop struct {
	Kind GroupStopKind `json:"kind"`
	Text string        `json:"text"`
	// muster, or the operator
	By string    `json:"by"`
	At time.Time `json:"at"`
	// The member that stopped it
	Member *string `json:"member,omitempty"`
	AtOnce *bool   `json:"at_once,omitempty"`
}

// GroupStopKind is why a group stopped. Resuming after failure and drift requires a reason.
type GroupStopKind string

// Values of GroupStopKind.
const (
	GroupStopOperator GroupStopKind = "operator"
	GroupStopFailure  GroupStopKind = "failure"
	GroupStopDrift    GroupStopKind = "drift"
	GroupStopRefused  GroupStopKind = "refused"
)

// GroupProgress is the progress of one member; rollout_state, counts, stop and waiting are those of
// its rollout.
type GroupProgress struct {
	Name         string           `json:"name"`
	State        GroupMemberState `json:"state"`
	Version      string           `json:"version"`
	RolloutState *RolloutState    `json:"rollout_state,omitempty"`
	Counts       *Counts          `json:"counts,omitempty"`
	Stop         *Stop            `json:"stop,omitempty"`
	Waiting      *[]Wait          `json:"waiting,omitempty"`
	// The rollout that rolls it back
	RollbackId *string `json:"rollback_id,omitempty"`
}

// GroupPreview is what a group would do as of now, identified by its hash. A later member may find
// another fleet.
type GroupPreview struct {
	GroupId  string               `json:"group_id"`
	Hash     string               `json:"hash" example:"sha256:…"`
	At       time.Time            `json:"at"`
	Members  []GroupMemberPreview `json:"members"`
	AtLeast  string               `json:"at_least" example:"1h0m0s"`
	Estimate string               `json:"estimate"`
}

// GroupMemberPreview is the summary of the preview of a member; POST /api/v1/rollout_preview with its
// plan has all of it.
type GroupMemberPreview struct {
	Name     string   `json:"name"`
	Version  string   `json:"version"`
	Hash     string   `json:"hash"`
	Targets  int      `json:"targets"`
	Skipped  int      `json:"skipped"`
	Batches  int      `json:"batches"`
	Offline  int      `json:"offline"`
	AtLeast  string   `json:"at_least"`
	Estimate string   `json:"estimate"`
	Warnings []string `json:"warnings"`
}

// RolloutGroupItem is the answer of POST /api/v1/rollout-groups.
type RolloutGroupItem struct {
	Item RolloutGroup `json:"item"`
}

// GroupStatusItem is the answer of GET /api/v1/rollout-groups/{groupId}.
type GroupStatusItem struct {
	Item GroupStatus `json:"item"`
}

// GroupPreviewItem is the answer of POST /api/v1/rollout-groups/{groupId}/preview.
type GroupPreviewItem struct {
	Item GroupPreview `json:"item"`
}

// RolloutGroupList is the answer of GET /api/v1/rollout-groups.
type RolloutGroupList struct {
	Items   []RolloutGroup `json:"items"`
	Total   int            `json:"total"`
	Page    int            `json:"page"`
	PerPage int            `json:"perPage"`
}

// CreateGroupRequest is the body of POST /api/v1/rollout-groups.
type CreateGroupRequest struct {
	Plan GroupPlan `json:"plan"`
	Why  *string   `json:"why,omitempty"`
}

// SkipMemberRequest is the body of POST /api/v1/rollout-groups/{groupId}/skip.
type SkipMemberRequest struct {
	// Name of the member
	Member string  `json:"member"`
	Why    *string `json:"why,omitempty"`
}
