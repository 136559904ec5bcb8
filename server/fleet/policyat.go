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

// ParseChange returns the revision that the id of a POLICY_CHANGE names. The ids of older
// servers end with the coordinator's number, which is not used any more.
func ParseChange(actionID string) (PolicyAt, bool) {
	parts := strings.Split(strings.TrimPrefix(actionID, changePrefix), ":")
	if !IsChange(actionID) || len(parts) < 2 || len(parts) > 3 || parts[0] == "" {
		return PolicyAt{}, false
	}
	revision, err := strconv.ParseInt(parts[1], 10, 64)
	return PolicyAt{ID: parts[0], Revision: revision}, err == nil && revision > 0
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
