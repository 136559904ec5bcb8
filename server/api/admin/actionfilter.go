package admin

import (
	"slices"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// actionFilter selects actions by what no store has an index of.
type actionFilter struct {
	types     []agentapi.ActionType
	createdBy string
	outcomes  []fleet.ActionState
}

// rollbackType selects upgrades to a previous version, which have the type UPGRADE.
const rollbackType agentapi.ActionType = "ROLLBACK"

var (
	listedTypes = []agentapi.ActionType{
		agentapi.ActionUpgrade, rollbackType, agentapi.ActionStage, agentapi.ActionUnenroll, agentapi.ActionPolicyReassign, agentapi.ActionPolicyChange, agentapi.ActionProceed,
	}
	actionStates = []fleet.ActionState{
		fleet.ActionInProgress, fleet.ActionComplete, fleet.ActionFailed, fleet.ActionCancelled, fleet.ActionExpired, fleet.ActionRolloutPassed,
	}
)

func actionFilterOf(c *gin.Context) (f actionFilter, err error) {
	f.createdBy = c.Query("createdBy")
	if f.types, err = queryWords(c, "type", "the type of an action", listedTypes); err != nil {
		return f, err
	}
	f.outcomes, err = queryWords(c, "outcome", "the outcome of an action", actionStates)
	return f, err
}

func (f *actionFilter) isEmpty() bool { return len(f.types)+len(f.outcomes) == 0 && f.createdBy == "" }

func (f *actionFilter) has(s *action.Status) bool {
	typ := s.Type
	if s.Upgrade().Rollback {
		typ = rollbackType
	}
	return (len(f.types) == 0 || slices.Contains(f.types, typ)) &&
		(f.createdBy == "" || f.createdBy == s.CreatedBy) &&
		(len(f.outcomes) == 0 || slices.Contains(f.outcomes, s.Outcome()))
}

// Bounds of a filtered list.
const (
	// actionsRead is how many actions are read at one time; one may name 100,000 agents.
	actionsRead = 50
	// maxActionsRead bounds one answer. Older actions are in the audit trail.
	maxActionsRead = 5000
)

// page returns a page of the actions that have what the filter asks for. It reads from the newest
// on until the page is full.
func (f *actionFilter) page(q store.ActionQuery, read func(store.ActionQuery) ([]action.Status, error)) ([]action.Status, error) {
	if f.isEmpty() {
		return read(q)
	}
	var with []action.Status
	one := q
	one.Limit = actionsRead
	for one.Offset = 0; one.Offset < maxActionsRead && len(with) < q.Offset+q.Limit; one.Offset += actionsRead {
		some, err := read(one)
		if err != nil {
			return nil, err
		}
		for i := range some {
			if f.has(&some[i]) {
				with = append(with, some[i])
			}
		}
		if len(some) < actionsRead {
			break
		}
	}
	return part(with, q.Offset, q.Limit), nil
}
