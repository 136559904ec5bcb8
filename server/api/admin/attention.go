package admin

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/insight/attention"
	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/node/authority"
	"github.com/muster-fleet/muster/server/node/replica"
	"github.com/muster-fleet/muster/server/rollout/spec"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// attentionFacts are what is the same for all callers.
type attentionFacts struct {
	attention.Facts
	incidentsOpen int
}

// attention is asked for by every open browser, for its badges, so the facts are cached. They
// cost little, so none are stale: who has just approved something does not want to see it again.
func (h *Handlers) attention(c *gin.Context) error {
	ctx, now := c.Request.Context(), h.Now.UTC()
	cached, err := h.attending.get(ctx, "", now, h.attentionFacts)
	if err != nil {
		return err
	}
	facts := cached.Facts
	if facts.FailuresUnseen, err = h.unseenFailures(c); err != nil {
		return err
	}
	c.JSON(http.StatusOK, adminapi.Attention{
		Items: each(attention.List(facts, now), renderAttention), FailuresUnseen: facts.FailuresUnseen, IncidentsOpen: cached.incidentsOpen,
	})
	return nil
}

func renderAttention(i attention.Item) adminapi.AttentionItem {
	return adminapi.AttentionItem{
		Kind: adminapi.AttentionItemKind(i.Kind), Severity: adminapi.AttentionItemSeverity(i.Severity), Text: i.Text, Next: ptr(i.Next), Subject: ptr(i.Subject),
		Count: ptr(i.Count), Since: i.Since, Until: i.Until,
	}
}

func (h *Handlers) attentionFacts(ctx context.Context, now time.Time) (out attentionFacts, err error) {
	heads, err := h.Store.Rollouts().Active(ctx)
	if err != nil {
		return out, err
	}
	for _, head := range heads {
		r, err := h.Store.Rollouts().Get(ctx, head.ID)
		if err != nil {
			if fleet.KindOf(err) == fleet.NotFound {
				continue // it has been deleted since
			}
			return out, err
		}
		out.Rollouts = append(out.Rollouts, r)
	}
	objects, _, err := h.Declared.List(ctx, nil, 0, 0)
	if err != nil {
		return out, err
	}
	for _, o := range objects {
		if by := o.Status.Suspended; by != nil {
			out.Suspended = append(out.Suspended, attention.SuspendedFleet{Name: o.Metadata.Name, By: *by})
			continue
		}
		d := attention.DeclaredFleet{Name: o.Metadata.Name, Stalled: trueCondition(&o.Status, spec.Stalled), Degraded: trueCondition(&o.Status, spec.Degraded)}
		if r := o.Status.Rollout; r != nil {
			d.Rollout = r.ID
		}
		if d.Stalled != nil || d.Degraded != nil {
			out.Declared = append(out.Declared, d)
		}
	}
	if out.Incidents, out.incidentsOpen, err = h.Incidents.List(ctx, fleet.IncidentOpen, 0, 0); err != nil {
		return out, err
	}
	if out.Silent, err = h.silentUpgrades(ctx, now); err != nil {
		return out, err
	}
	if out.Stalled, err = h.stalledUpgrades(ctx, now); err != nil {
		return out, err
	}
	if out.Unwritable, err = h.unwritable(ctx, now); err != nil {
		return out, err
	}
	if out.DeadLetters, _, err = h.Store.DeadLetters().List(ctx, 0, 0); err != nil {
		return out, err
	}
	hooks, err := h.Webhooks.List(ctx)
	if err != nil {
		return out, err
	}
	out.Webhooks = map[string]string{}
	for _, w := range hooks {
		out.Webhooks[w.ID] = w.Name
	}
	servers, err := h.Replicas.List(ctx)
	if err != nil {
		return out, err
	}
	out.Remarks = replica.Remarks(servers, now)
	for _, d := range h.Store.Unreadable().List(now.Add(-store.UnreadableFor)) {
		out.Unreadable = append(out.Unreadable, d.Noun+" "+d.ID)
	}
	return out, h.addExpiries(ctx, &out.Facts, now)
}

// trueCondition returns a condition of a declared fleet if it is true, else nil.
func trueCondition(st *spec.Status, t spec.ConditionType) *attention.Condition {
	c := st.Condition(t)
	if c == nil || c.Status != spec.True {
		return nil
	}
	return &attention.Condition{Reason: c.Reason, Message: c.Message, Since: c.LastTransitionTime}
}

func (h *Handlers) renewedElsewhere() *x509.Certificate {
	if h.RenewedElsewhere == nil {
		return nil
	}
	return h.RenewedElsewhere()
}

// addExpiries adds what expires: keys, and the files that people sign.
func (h *Handlers) addExpiries(ctx context.Context, facts *attention.Facts, now time.Time) error {
	view, err := h.Trust.View(ctx)
	if err != nil {
		return err
	}
	facts.TrustProblem = view.Problem
	files, err := view.OfflineExpiries()
	if err != nil {
		return err
	}
	for _, f := range files {
		facts.Expiries = append(facts.Expiries, attention.Expiry{
			Kind: attention.Trust, Subject: string(f.Role), What: fmt.Sprintf("%s version %d", f.Role, f.Version), At: f.Expires,
			Effect: "then hosts install nothing new", Next: fmt.Sprintf("Let %s sign the next version.", f.Who),
		})
	}
	if c := h.renewedElsewhere(); c != nil && !now.Before(authority.WarnFrom(c)) {
		facts.Expiries = append(facts.Expiries, attention.Expiry{
			Kind: attention.Server, What: "The certificate of this server", At: c.NotAfter,
			Effect: "then no agent and no operator can connect", Next: "Install another one: muster ca --help, or replace the file tls.certificate.",
		})
	}
	admins, _, err := h.Store.AdminKeys().List(ctx, 0, 0)
	if err != nil {
		return err
	}
	for _, k := range admins {
		if k.ExpireAt != nil && k.Usable(now) == nil {
			facts.Expiries = append(facts.Expiries, attention.Expiry{
				Kind: attention.Key, Subject: k.ID, What: "The admin key " + k.Name, At: *k.ExpireAt,
				Effect: "then who uses it has no access", Next: "Rotate the key.",
			})
		}
	}
	enrollments, _, err := h.Store.EnrollmentKeys().List(ctx, 0, 0)
	if err != nil {
		return err
	}
	for _, k := range enrollments {
		if k.ExpireAt != nil && k.Usable(now) == nil {
			facts.Expiries = append(facts.Expiries, attention.Expiry{
				Kind: attention.Key, Subject: k.ID, What: "The enrollment key " + k.Name, At: *k.ExpireAt,
				Effect: "then no host can enrol with it", Next: "Create a new key where it is used.",
			})
		}
	}
	return nil
}

// replacing are the phases of an upgrade from which an agent that stays silent may need help.
var replacing = []agentapi.UpgradeState{agentapi.UpgradeReplacing, agentapi.UpgradeRestarting, agentapi.UpgradeWatching}

// silentUpgrades counts the agents that are offline since their upgrade replaced the version.
func (h *Handlers) silentUpgrades(ctx context.Context, now time.Time) (int, error) {
	timeouts, err := h.Policies.Timeouts(ctx)
	if err != nil {
		return 0, err
	}
	var in kql.AnyOf
	for _, s := range replacing {
		in = append(in, kql.Equals{Field: fleet.FieldUpgradeState, Value: string(s)})
	}
	counts, err := store.CountHealth(ctx, h.Store.Agents(), store.AgentFilter{ActiveOnly: true, Query: in}, timeouts, now)
	return counts[fleet.HealthOffline], err
}

// unwritable counts the agents that are online and whose host cannot write to its disk.
func (h *Handlers) unwritable(ctx context.Context, now time.Time) (int, error) {
	timeouts, err := h.Policies.Timeouts(ctx)
	if err != nil {
		return 0, err
	}
	query, err := kql.Compile(fleet.UnwritableHosts, fleet.AgentSchema(nil), now)
	if err != nil {
		return 0, err
	}
	counts, err := store.CountHealth(ctx, h.Store.Agents(), store.AgentFilter{ActiveOnly: true, Query: query}, timeouts, now)
	return counts[fleet.HealthDegraded], err
}

// maxStalledRead bounds the agents that are searched for upgrades that do not move, oldest upgrades
// first: some 100 ms of a store.
const maxStalledRead = 1_000

// stalledUpgrades counts the agents that are online, and whose upgrade, or that of a component, does
// not move.
func (h *Handlers) stalledUpgrades(ctx context.Context, now time.Time) (n int, err error) {
	agents, err := h.Store.Agents().Upgrading(ctx, store.UpgradingSince{}, maxStalledRead)
	if err != nil {
		return 0, err
	}
	components, _, err := h.Store.Agents().List(ctx, store.AgentQuery{
		AgentFilter: store.AgentFilter{ActiveOnly: true, Query: kql.Exists{Field: fleet.FieldComponentsSince}},
		Sort:        store.AgentSort(fleet.FieldComponentsSince.Name), Limit: maxStalledRead,
	})
	if err != nil {
		return 0, err
	}
	stalled := map[string]bool{}
	for _, a := range agents {
		s := a.Of("")
		if _, is := s.Stalled(now); is {
			stalled[a.ID] = true
		}
	}
	for _, a := range components {
		for _, action := range a.ComponentActions {
			s := a.Of(a.ComponentOf(action))
			if _, is := s.Stalled(now); is {
				stalled[a.ID] = true
			}
		}
	}
	return len(stalled), nil
}

// unseenFailures counts the agents whose last upgrade failed or was rolled back since the caller
// has looked.
func (h *Handlers) unseenFailures(c *gin.Context) (int, error) {
	f, err := h.failuresOf(c.Request.Context(), "", callersKey(c).FailuresSeenAt)
	return f.Unseen, err
}
