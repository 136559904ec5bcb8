package adminapi

import (
	"net/http"

	"github.com/muster-fleet/muster/server/fleet"
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
type GroupPlan = fleet.GroupPlan

// FailurePolicy is what happens when a member fails. partial_ok: what is done stays, and no more is
// started. rollback_all: the member and all before it are rolled back, the last one first. manual: the
// group pauses for an operator, who resumes, skips or rolls back.
type FailurePolicy = fleet.FailurePolicy

// GroupMemberPlan is a member of a group: the plan of one rollout.
type GroupMemberPlan = fleet.GroupMemberPlan

// GroupState is the state of a group.
type GroupState = fleet.GroupState

// GroupMemberState is the state of a member of a group.
type GroupMemberState = fleet.GroupMemberState

// RolloutGroup is a list of rollouts that run one after the other.
type RolloutGroup = fleet.RolloutGroup

// GroupStatus is a group with the progress of its members.
type GroupStatus = fleet.GroupStatus

// GroupMember is one rollout of a group.
type GroupMember = fleet.GroupMember

// GroupStop is why the group is paused, or has ended other than completed.
type GroupStop = fleet.GroupStop

// GroupStopKind is why a group stopped. Resuming after failure and drift requires a reason.
type GroupStopKind = fleet.GroupStopKind

// GroupProgress is the progress of one member; rollout_state, counts, stop and waiting are those of
// its rollout.
type GroupProgress = fleet.GroupProgress

// GroupPreview is what a group would do as of now, identified by its hash. A later member may find
// another fleet.
type GroupPreview = fleet.GroupPreview

// GroupMemberPreview is the summary of the preview of a member; POST /api/v1/rollout_preview with its
// plan has all of it.
type GroupMemberPreview = fleet.GroupMemberPreview

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
