package admin

import (
	"cmp"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/insight/history"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// routeActions adds the routes of actions.
func (h *Handlers) routeActions(on bind) {
	on(adminapi.GetAction.Call, h.getAction)
	on(adminapi.ListActionAgents.Call, h.listActionHosts)
	on(adminapi.GetAgentsByActions.Call, h.agentsOfActions) // as /agents/actions; both are in Kibana
	on(adminapi.ListActionStatus.Call, h.actionStatus)
	on(adminapi.CancelAction.Call, h.cancelAction)
}

var (
	listedTypes = []agentapi.ActionType{
		agentapi.ActionUpgrade, action.RollbackType, agentapi.ActionStage, agentapi.ActionUnenroll, agentapi.ActionPolicyReassign, agentapi.ActionPolicyChange, agentapi.ActionProceed,
	}
	actionStates = []fleet.ActionState{
		fleet.ActionInProgress, fleet.ActionComplete, fleet.ActionFailed, fleet.ActionCancelled, fleet.ActionExpired, fleet.ActionRolloutPassed,
	}
)

func (h *Handlers) actionStatus(c *gin.Context) error {
	number, size, err := page(c, 0)
	if err != nil {
		return err
	}
	errorSize, err := queryInt(c, "errorSize", 5, 0, 100)
	if err != nil {
		return err
	}
	latest, err := queryInt(c, "latest", 0, 0, maxLatest)
	if err != nil {
		return err
	}
	q := action.Query{Offset: number * size, Limit: size}
	if q.From, q.Until, err = createdIn(c, latest, h.Now.UTC()); err != nil {
		return err
	}
	filter := action.Filter{CreatedBy: c.Query("createdBy")}
	if filter.Types, err = queryWords(c, "type", "the type of an action", listedTypes); err != nil {
		return err
	}
	if filter.Outcomes, err = queryWords(c, "outcome", "the outcome of an action", actionStates); err != nil {
		return err
	}
	list, err := h.Actions.Find(c.Request.Context(), q, filter, latest > 0, errorSize) // as in Kibana, where latest is for recent errors
	if err != nil {
		return err
	}
	c.JSON(http.StatusOK, adminapi.ActionStatusList{Items: each(list, func(s action.Status) adminapi.ActionStatus { return renderAction(&s, h.Now.UTC()) })})
	return nil
}

func renderAction(s *action.Status, now time.Time) adminapi.ActionStatus {
	a := adminapi.ActionStatus{
		ActionId: s.ID, Type: string(s.Type), Status: adminapi.ActionState(s.State), Version: ptr(s.Upgrade().Version),
		StartTime: s.StartTime, Expiration: s.Expiration, CreationTime: s.CreatedAt, CancellationTime: s.CancelledAt,
		NbAgentsActioned: s.Actioned, NbAgentsActionCreated: len(s.Agents), NbAgentsAck: s.Counts.Acked, NbAgentsFailed: s.Counts.Failed, NbAgentsDone: s.Done(), Outcome: adminapi.ActionState(s.Outcome()),
		NewPolicyId: ptr(s.NewPolicy()), Rollback: ptr(s.Upgrade().Rollback), Component: ptr(s.Component()), HasRolloutPeriod: s.RolloutSeconds > 0, CreatedBy: ptr(s.CreatedBy), LatestErrors: make([]adminapi.ActionError, len(s.Errors)),
	}
	a.IsAutomatic = ptr(s.Automatic)
	addActionProgress(&a, s)
	if s.Preparing != nil {
		a.Preparing = &adminapi.ActionPreparing{Handled: s.Preparing.Handled, Agents: s.Preparing.Agents}
	}
	if s.Policy.ID == "" { // a change of a policy is no stored action
		commands := s.Commands(s.Counts, s.Stoppable(), now)
		a.Commands = &commands
	}
	switch {
	case s.Policy.ID != "":
		// Kibana's have a completionTime from the beginning.
		a.PolicyId, a.Revision, a.NbAgentsActionCreated, a.CompletionTime = &s.Policy.ID, &s.Policy.Revision, s.Actioned, &s.CreatedAt
	case s.State == fleet.ActionComplete || s.State == fleet.ActionFailed:
		a.CompletionTime = ptr(s.Counts.Last)
	}
	for i, r := range s.Errors {
		a.LatestErrors[i] = adminapi.ActionError{AgentId: r.AgentID, Hostname: ptr(r.Hostname), Error: r.Error, Timestamp: r.Timestamp}
	}
	return a
}

func (h *Handlers) getAction(c *gin.Context) error {
	errorSize, err := queryInt(c, "errorSize", 5, 0, 100)
	if err != nil {
		return err
	}
	s, err := h.Actions.Status(c.Request.Context(), c.Param("actionId"), errorSize)
	if err != nil {
		return err
	}
	c.JSON(http.StatusOK, adminapi.ActionStatusItem{Item: renderAction(&s, h.Now.UTC())})
	return nil
}

func (h *Handlers) listActionHosts(c *gin.Context) error {
	states, err := queryWords(c, "state", "the state of a host of an action", action.HostStates)
	if err != nil {
		return err
	}
	return answerPage(c, func(offset, limit int) ([]adminapi.ActionHost, int, error) {
		list, total, err := h.Actions.Hosts(c.Request.Context(), c.Param("actionId"), action.HostQuery{States: states, Offset: offset, Limit: limit})
		return each(list, renderActionHost), total, err
	})
}

func renderActionHost(host action.Host) adminapi.ActionHost {
	return adminapi.ActionHost{
		AgentId: host.AgentID, Hostname: ptr(host.Hostname), State: adminapi.ActionHostState(host.State), Since: host.Since,
		Reason: renderReason(host.Code, host.Reason), Text: ptr(host.Text),
	}
}

// maxLatest is the longest that fits a time.Duration.
const maxLatest = int(math.MaxInt64 / time.Millisecond)

// dateFormats are the forms of a date that Kibana's clients send.
var dateFormats = []string{time.RFC3339, "2006-01-02", "2006-01-02T15:04:05", "2006-01-02T15:04"}

// createdIn returns the times that the parameters date, a time from which one day counts,
// and latest, milliseconds before now, select. As in Kibana, date takes precedence.
func createdIn(c *gin.Context, latest int, now time.Time) (from, until *time.Time, err error) {
	if date := c.Query("date"); date != "" {
		for _, format := range dateFormats {
			if from, err := time.Parse(format, date); err == nil {
				until := from.AddDate(0, 0, 1)
				return &from, &until, nil
			}
		}
		return nil, nil, fleet.FieldError("query.date", "not a valid date")
	}
	if latest == 0 {
		return nil, nil, nil
	}
	since := now.Add(-time.Duration(latest) * time.Millisecond)
	return &since, nil, nil
}

func (h *Handlers) cancelAction(c *gin.Context) error {
	a, err := h.Actions.Cancel(c.Request.Context(), c.Param("actionId"), actor(c))
	if err != nil {
		return err
	}
	var out adminapi.CancelResponse
	out.Item.Id, out.Item.Type, out.Item.CreatedAt = a.ID, string(a.Type), a.CreatedAt
	c.JSON(http.StatusOK, out)
	return nil
}

func (h *Handlers) availableVersions(c *gin.Context) error {
	catalog, err := h.Actions.Catalog(c.Request.Context())
	return send(c, adminapi.VersionList{Items: catalog.Versions()}, err)
}

// addActionProgress adds to an action how it stands on its agents.
func addActionProgress(out *adminapi.ActionStatus, s *action.Status) {
	out.Rollout = s.Rollout
	if s.Progress == nil {
		return
	}
	counts := adminapi.ProgressCounts{}
	for state, n := range s.Progress {
		counts[string(state)] = n
	}
	out.Progress = &counts
	if len(s.Causes) == 0 {
		return
	}
	causes := []adminapi.RolloutCause{}
	for end, n := range s.Causes {
		c := adminapi.RolloutCause{Code: fleet.ReasonCode(cmp.Or(end.Code, unknownCause)), Text: history.CauseText(end.Code, end.State), State: fleet.TargetState(end.State), Count: n}
		if end.Code == action.RefusedCode {
			c.Text = "The server refused it when it was ordered"
		}
		causes = append(causes, c)
	}
	slices.SortFunc(causes, func(a, b adminapi.RolloutCause) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Code, b.Code), cmp.Compare(a.State, b.State))
	})
	out.Causes = &causes
}
