package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/insight/inventory"
	"github.com/muster-fleet/muster/server/rollout/action"
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

// previewing is a preview that is being made of an order.
type previewing struct {
	asked
	ids        []string // of the agents that the request names or selects
	selected   bool
	timeouts   map[string]time.Duration
	now        time.Time
	causes     fleet.CauseCounts
	will, wont int
}

// beginPreview begins a preview for the agents of a request.
func (h *Handlers) beginPreview(ctx context.Context, of asked) (*previewing, error) {
	ids, selected, err := h.selection(ctx, of.agents, of.inactive)
	if err != nil {
		return nil, err
	}
	return h.previewOf(ctx, of, ids, selected)
}

func (h *Handlers) previewOf(ctx context.Context, of asked, ids []string, selected bool) (*previewing, error) {
	if err := of.check(); err != nil {
		return nil, err
	}
	timeouts, err := h.Policies.Timeouts(ctx)
	return &previewing{asked: of, ids: ids, selected: selected, timeouts: timeouts, now: h.Now.UTC()}, err
}

// add counts an agent, and returns why it does not follow the order.
func (p *previewing) add(v *action.Verdict) (reason *string) {
	if v.Err == nil {
		p.will++
		return nil
	}
	p.wont++
	p.causes.AddRefusal(&v.Agent, v.Err)
	return ptr(v.Err.Error())
}

// follows counts an agent that follows the order, but in another way than at once.
func (p *previewing) follows(a *fleet.Agent, code, text string) {
	p.causes.Add(fleet.CauseCount{Code: code, Text: text, Will: true}, 1, nameOf(a))
}

// away counts an agent that is not there, and returns the remark: what it does, and when.
func (p *previewing) away(a *fleet.Agent, does string) (remark string) {
	s := a.Facts().StatusAt(p.now, p.timeouts[a.PolicyID])
	if s != fleet.StatusOffline && s != fleet.StatusInactive {
		return ""
	}
	remark = fmt.Sprintf("is %s: it %s", s, does)
	p.follows(a, string(s), fleet.Sentence("the agent "+remark))
	return remark
}

// owned counts an agent that belongs to another declared fleet than takeOver, and returns the
// remark. The order is refused as a whole for such agents.
func (p *previewing) owned(v *action.Verdict, takeOver string) (remark string) {
	if v.Owner == "" || v.Owner == takeOver {
		return ""
	}
	remark = fmt.Sprintf("The agent belongs to the fleet %s: the order is refused unless it takes that fleet over.", v.Owner)
	p.causes.Add(fleet.CauseCount{Code: string(fleet.CauseOwned), Text: remark, Will: true, Choice: fleet.ChoiceTakeOver}, 1, nameOf(&v.Agent))
	return remark
}

// endPreview counts the inactive agents, and returns the text with which a guard rail refuses the
// order as a whole. err is what judging the agents has returned.
func (h *Handlers) endPreview(ctx context.Context, p *previewing, err error) (refused *string, _ error) {
	if refused, err = refusal(err); err != nil {
		return nil, err
	}
	return refused, h.countInactive(ctx, p)
}

// readOrder reads the order of a request, and for which agents it is.
type readOrder func(*gin.Context) (action.UpgradeOrder, asked, error)

// ordersUpgrade returns the handler that gives the orders which read returns.
func (h *Handlers) ordersUpgrade(read readOrder) func(*gin.Context) error {
	return func(c *gin.Context) error {
		o, _, err := read(c)
		if err != nil {
			return err
		}
		a, err := h.Actions.Upgrade(c.Request.Context(), o)
		return answerAction(c, a, err)
	}
}

// previewsUpgrade returns the handler of the previews of such orders.
func (h *Handlers) previewsUpgrade(read readOrder) func(*gin.Context) error {
	return func(c *gin.Context) error {
		o, of, err := read(c)
		if err != nil {
			return err
		}
		return h.answerPreview(c, o, of)
	}
}

// answerPreview answers with what would become of the agents of an order, and with what the
// guard rails say of it.
func (h *Handlers) answerPreview(c *gin.Context, o action.UpgradeOrder, of asked) error {
	ctx := c.Request.Context()
	p, err := h.previewOf(ctx, of, o.AgentIDs, o.Selected)
	if err != nil {
		return err
	}
	catalog, err := h.Actions.CatalogOf(ctx, o.Component)
	if err != nil {
		return err
	}
	verb := "upgrades"
	if o.Stages {
		verb = "stages it"
	}
	does := fmt.Sprintf("%s if it returns within %d days", verb, fleet.DefaultExpiration/(24*time.Hour))
	out := adminapi.UpgradePreview{Version: o.Version, Items: []adminapi.UpgradePreviewItem{}}
	err = h.Actions.EachVerdict(ctx, o, func(v action.Verdict) {
		subject, reason := v.Agent.Of(o.Component), p.add(&v)
		if v.Err == nil {
			remark := p.away(&v.Agent, does)
			if cause, text := subject.HostRefuses(o.UpgradeRequest, catalog, p.now); cause != "" && !o.Rollback {
				remark = cmp.Or(remark, text)
				p.follows(&v.Agent, string(cause), text)
			}
			owned := p.owned(&v, o.TakeOver)
			reason = ptr(cmp.Or(remark, owned))
		}
		if of.wants(len(out.Items)) {
			out.Items = append(out.Items, adminapi.UpgradePreviewItem{
				AgentId: v.Agent.ID, Hostname: v.Agent.Hostname(), Version: subject.Version, Will: v.Err == nil, Reason: reason,
			})
		}
	})
	var why *fleet.Error
	if errors.As(err, &why) && (why.Code == string(fleet.WhyFreeze) || why.Code == string(fleet.WhyExposure)) {
		out.Guard = (*adminapi.UpgradePreviewGuard)(ptr(why.Code))
	}
	if out.Refused, err = h.endPreview(ctx, p, err); err != nil {
		return err
	}
	out.Will, out.Wont, out.Causes = p.will, p.wont, renderCauses(&p.causes)
	c.JSON(http.StatusOK, out)
	return nil
}

// refusal returns the text with which a guard rail refuses an order, for its preview; other errors
// are returned.
func refusal(err error) (*string, error) {
	if err != nil && fleet.KindOf(err) == fleet.Conflict {
		return ptr(err.Error()), nil
	}
	return nil, err
}

func nameOf(a *fleet.Agent) string { return cmp.Or(a.Hostname(), a.ID) }

// inactiveSample is how many inactive agents a preview names.
const inactiveSample = 5

// countInactive adds the inactive agents that match the query of a request and are not selected by
// it: they would be with includeInactive. Those that are selected are sorted.
func (h *Handlers) countInactive(ctx context.Context, p *previewing) error {
	var kuery string
	if isSet(p.inactive) || json.Unmarshal(p.agents, &kuery) != nil || strings.TrimSpace(kuery) == "" {
		return nil // all are selected, or they are named
	}
	n, named, err := h.Inventory.Inactive(ctx, inventory.Selection{Kuery: kuery, Field: "body.agents"}, p.ids, inactiveSample)
	if err != nil || n == 0 {
		return err
	}
	hosts := make([]string, len(named))
	for i := range named {
		hosts[i] = nameOf(&named[i])
	}
	p.causes.Add(fleet.CauseCount{
		Code: string(fleet.CauseInactive), Text: "The agent has been silent for so long that it counts as inactive.", Choice: fleet.ChoiceIncludeInactive,
	}, n, hosts...)
	return nil
}

func renderCauses(c *fleet.CauseCounts) *[]adminapi.PreviewCause { return new(orEmpty(c.List())) }
