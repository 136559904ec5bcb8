package fleet

import (
	"fmt"
	"strconv"
	"strings"
)

// PolicyAt is a revision of a policy.
type PolicyAt struct {
	ID       string
	Revision int64 // 0: none
}

// changePrefix is the prefix of the ids of POLICY_CHANGE actions, which have no document.
const changePrefix = "policy:"

// ChangeID returns the id of the POLICY_CHANGE with this revision.
func (p PolicyAt) ChangeID() string { return fmt.Sprintf("%s%s:%d", changePrefix, p.ID, p.Revision) }

// IsChange reports whether an action's id is that of a POLICY_CHANGE.
func IsChange(actionID string) bool { return strings.HasPrefix(actionID, changePrefix) }

// ParseChange returns the revision that the id of a POLICY_CHANGE names, and its
// coordinator's number. The ids of older Fleet Servers end with that number; it is nil in
// those of newer ones, which have no coordinator, and in ours.
func ParseChange(actionID string) (p PolicyAt, coordinator *int64, ok bool) {
	parts := strings.Split(strings.TrimPrefix(actionID, changePrefix), ":")
	if !IsChange(actionID) || len(parts) < 2 || len(parts) > 3 || parts[0] == "" {
		return PolicyAt{}, nil, false
	}
	revision, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil || revision <= 0 {
		return PolicyAt{}, nil, false
	}
	if len(parts) == 3 {
		n, err := strconv.ParseInt(parts[2], 10, 64)
		if err != nil || n < 0 {
			return PolicyAt{}, nil, false
		}
		coordinator = &n
	}
	return PolicyAt{ID: parts[0], Revision: revision}, coordinator, true
}

// AcknowledgePolicy records that the agent has acknowledged a revision of its policy, and
// reports whether that changed the agent. As in Fleet Server, a revision of another policy
// changes nothing, nor does one that is not newer, by its number and then by its
// coordinator's.
func (a *Agent) AcknowledgePolicy(has PolicyAt, coordinator *int64) bool {
	newer := has.Revision > a.PolicyRev || has.Revision == a.PolicyRev && orZero(coordinator) > orZero(a.PolicyCoordinator)
	if has.ID != a.PolicyID || !newer {
		return false
	}
	a.PolicyRev, a.PolicyCoordinator = has.Revision, coordinator
	return true
}

func orZero(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

// Policy returns the revision of its policy that the agent has.
func (a *Agent) Policy() PolicyAt { return PolicyAt{a.PolicyID, a.PolicyRev} }

// ReportedPolicy returns the revision of its policy that the agent has, given what its
// check-in says. What an agent reports takes precedence over the document: it may have lost a
// revision that it acknowledged, with the version that it was rolled back from. Older
// agents say nothing, and their acknowledgements count.
func (a *Agent) ReportedPolicy(policyID string, revision int64) PolicyAt {
	switch policyID {
	case "":
		return a.Policy()
	case a.PolicyID:
		return PolicyAt{policyID, max(0, revision)}
	}
	return PolicyAt{a.PolicyID, 0} // it was reassigned
}
