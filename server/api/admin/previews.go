package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/store"
)

// asked is the part of a request for a preview that says for which agents, and how much of the
// preview the caller wants.
type asked struct {
	agents   json.RawMessage
	inactive *bool
	maxItems *int
}

// wants reports whether a preview with so many items gets another one. All agents are counted.
func (o asked) wants(items int) bool { return o.maxItems == nil || items < *o.maxItems }

func (o asked) check() error {
	if o.maxItems != nil && *o.maxItems < 0 {
		return fleet.FieldError("body.max_items", "is %d, want 0 or more", *o.maxItems)
	}
	return nil
}

// preview returns what would become of the agents of an order. does says what an agent does that
// follows it. owner names the declared fleet of an agent; nil: none counts.
func (h *Handlers) preview(ctx context.Context, of asked, o action.UpgradeOrder, owner func(*fleet.Agent) string, does string, each func(func(action.Verdict)) error) (adminapi.UpgradePreview, error) {
	out, now := adminapi.UpgradePreview{Version: o.Version, Items: []adminapi.UpgradePreviewItem{}}, h.Now.UTC()
	if err := of.check(); err != nil {
		return out, err
	}
	timeouts, err := h.Policies.Timeouts(ctx)
	if err != nil {
		return out, err
	}
	catalog, err := h.Actions.CatalogOf(ctx, o.Component)
	if err != nil {
		return out, err
	}
	var causes fleet.CauseCounts
	err = each(func(v action.Verdict) {
		subject := v.Agent.Of(o.Component)
		var reason string
		if v.Err != nil {
			out.Wont++
			causes.AddRefusal(&v.Agent, v.Err)
			reason = v.Err.Error()
		} else {
			out.Will++
			if s, away := awayAt(&v.Agent, timeouts, now); away {
				reason = fmt.Sprintf("is %s: it %s if it returns within %d days", s, does, fleet.DefaultExpiration/(24*time.Hour))
				causes.Add(fleet.CauseCount{Code: string(s), Text: fleet.Sentence("the agent " + reason), Will: true}, 1, nameOf(&v.Agent))
			}
			if cause, text := subject.HostRefuses(o.UpgradeRequest, catalog, now); cause != "" && !o.Rollback {
				reason = cmp.Or(reason, text)
				causes.Add(fleet.CauseCount{Code: string(cause), Text: text, Will: true}, 1, nameOf(&v.Agent))
			}
			reason = cmp.Or(reason, countOwned(&causes, &v.Agent, owner, o.TakeOver))
		}
		if of.wants(len(out.Items)) {
			out.Items = append(out.Items, adminapi.UpgradePreviewItem{
				AgentId: v.Agent.ID, Hostname: v.Agent.Hostname(), Version: subject.Version, Will: v.Err == nil, Reason: ptr(reason),
			})
		}
	})
	if err == nil {
		err = h.countInactive(ctx, of, o.AgentIDs, &causes, timeouts, now)
	}
	out.Causes = renderCauses(&causes)
	return out, err
}

// countOwned adds an agent that belongs to another declared fleet than takeOver, and returns the
// remark. The order is refused as a whole for such agents.
func countOwned(causes *fleet.CauseCounts, a *fleet.Agent, owner func(*fleet.Agent) string, takeOver string) string {
	if owner == nil {
		return ""
	}
	name := owner(a)
	if name == "" || name == takeOver {
		return ""
	}
	text := fmt.Sprintf("The agent belongs to the fleet %s: the order is refused unless it takes that fleet over.", name)
	causes.Add(fleet.CauseCount{Code: string(fleet.CauseOwned), Text: text, Will: true, Choice: fleet.ChoiceTakeOver}, 1, nameOf(a))
	return text
}

func nameOf(a *fleet.Agent) string { return cmp.Or(a.Hostname(), a.ID) }

// awayAt returns the status of an agent that is not there, offline or inactive.
func awayAt(a *fleet.Agent, timeouts map[string]time.Duration, now time.Time) (fleet.Status, bool) {
	s := a.Facts().StatusAt(now, timeouts[a.PolicyID])
	return s, s == fleet.StatusOffline || s == fleet.StatusInactive
}

// inactiveSample is how many inactive agents a preview names.
const inactiveSample = 5

// countInactive adds the inactive agents that match the query of a request and are not selected by
// it: they would be with includeInactive. ids are those that are selected, sorted.
func (h *Handlers) countInactive(ctx context.Context, of asked, ids []string, causes *fleet.CauseCounts, timeouts map[string]time.Duration, now time.Time) error {
	var kuery string
	if isSet(of.inactive) || json.Unmarshal(of.agents, &kuery) != nil || strings.TrimSpace(kuery) == "" {
		return nil // all are selected, or they are named
	}
	f, err := selectAgents("body.agents", "("+kuery+") and status:"+string(fleet.StatusInactive), true, timeouts, now)
	if err != nil {
		return err
	}
	var left []string
	n := 0
	err = h.Store.Agents().Facts(ctx, store.AgentFilter{Query: f}, func(id string, _ fleet.StatusFacts) {
		if _, selected := slices.BinarySearch(ids, id); selected {
			return
		}
		if n++; n <= inactiveSample {
			left = append(left, id)
		}
	})
	if err != nil || n == 0 {
		return err
	}
	named, err := h.Store.Agents().GetMany(ctx, left)
	hosts := make([]string, len(named))
	for i := range named {
		hosts[i] = nameOf(&named[i])
	}
	causes.Add(fleet.CauseCount{
		Code: string(fleet.CauseInactive), Text: "The agent has been silent for so long that it counts as inactive.", Choice: fleet.ChoiceIncludeInactive,
	}, n, hosts...)
	return err
}

func renderCauses(c *fleet.CauseCounts) *[]adminapi.PreviewCause { return new(orEmpty(c.List())) }
