// Package facts reads what package attention judges.
package facts

import (
	"context"
	"fmt"
	"time"

	"github.com/muster-fleet/muster/server/agents/artifact/repository"
	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/insight/attention"
	"github.com/muster-fleet/muster/server/insight/cache"
	"github.com/muster-fleet/muster/server/insight/history"
	"github.com/muster-fleet/muster/server/insight/incident"
	"github.com/muster-fleet/muster/server/insight/inventory"
	"github.com/muster-fleet/muster/server/rollout/spec"
	"github.com/muster-fleet/muster/server/rollout/spec/declare"
	"github.com/muster-fleet/muster/server/store"
)

// Reader reads facts.
type Reader struct {
	Store     store.Store
	Agents    *inventory.Service
	History   *history.Service
	Trust     *repository.Service
	Declared  *declare.Service
	Incidents *incident.Service
	// Servers returns sentences about the servers, and what of this one expires.
	Servers func(ctx context.Context, now time.Time) ([]string, []attention.Expiry, error)
	Now     clock.Clock

	held cache.Of[Facts]
}

// Facts are what one person is shown.
type Facts struct {
	attention.Facts
	IncidentsOpen int
}

// Of returns the facts for a person who has seen failures until seen; nil: never. Every open browser
// asks for them, for its badges, so what is the same for all persons is some seconds old at most.
// No more: who has just approved something does not want to see it again.
func (r *Reader) Of(ctx context.Context, seen *time.Time) (Facts, error) {
	facts, err := r.held.Get(ctx, "", r.Now.UTC(), r.read)
	if err != nil {
		return facts, err
	}
	failures, err := r.History.Failures(ctx, "", seen)
	facts.FailuresUnseen = failures.Unseen
	return facts, err
}

func (r *Reader) read(ctx context.Context, now time.Time) (out Facts, err error) {
	heads, err := r.Store.Rollouts().Active(ctx)
	if err != nil {
		return out, err
	}
	for _, head := range heads {
		one, err := r.Store.Rollouts().Get(ctx, head.ID)
		if err != nil {
			if fleet.KindOf(err) == fleet.NotFound {
				continue // it has been deleted since
			}
			return out, err
		}
		out.Rollouts = append(out.Rollouts, one)
	}
	objects, _, err := r.Declared.List(ctx, nil, 0, 0)
	if err != nil {
		return out, err
	}
	for _, o := range objects {
		if by := o.Status.Suspended; by != nil {
			out.Suspended = append(out.Suspended, attention.SuspendedFleet{Name: o.Metadata.Name, By: *by})
			continue
		}
		d := attention.DeclaredFleet{Name: o.Metadata.Name, Stalled: trueCondition(&o.Status, spec.Stalled), Degraded: trueCondition(&o.Status, spec.Degraded)}
		if last := o.Status.Rollout; last != nil {
			d.Rollout = last.ID
		}
		if d.Stalled != nil || d.Degraded != nil {
			out.Declared = append(out.Declared, d)
		}
	}
	if out.Incidents, out.IncidentsOpen, err = r.Incidents.List(ctx, fleet.IncidentOpen, 0, 0); err != nil {
		return out, err
	}
	if out.Silent, err = r.Agents.Silent(ctx, now); err != nil {
		return out, err
	}
	if out.Stalled, err = r.Agents.Stalled(ctx, now); err != nil {
		return out, err
	}
	if out.Unwritable, err = r.Agents.Unwritable(ctx, now); err != nil {
		return out, err
	}
	if out.DeadLetters, _, err = r.Store.DeadLetters().List(ctx, 0, 0); err != nil {
		return out, err
	}
	hooks, _, err := r.Store.Webhooks().List(ctx, 0, 0)
	if err != nil {
		return out, err
	}
	out.Webhooks = map[string]string{}
	for _, w := range hooks {
		out.Webhooks[w.ID] = w.Name
	}
	if out.Remarks, out.Expiries, err = r.Servers(ctx, now); err != nil {
		return out, err
	}
	for _, d := range r.Store.Unreadable().List(now.Add(-store.UnreadableFor)) {
		out.Unreadable = append(out.Unreadable, d.Noun+" "+d.ID)
	}
	return out, r.addExpiries(ctx, &out.Facts, now)
}

// trueCondition returns a condition of a declared fleet if it is true, else nil.
func trueCondition(st *spec.Status, t spec.ConditionType) *attention.Condition {
	c := st.Condition(t)
	if c == nil || c.Status != spec.True {
		return nil
	}
	return &attention.Condition{Reason: c.Reason, Message: c.Message, Since: c.LastTransitionTime}
}

// addExpiries adds what expires: keys, and the files that people sign.
func (r *Reader) addExpiries(ctx context.Context, facts *attention.Facts, now time.Time) error {
	view, err := r.Trust.View(ctx)
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
	admins, _, err := r.Store.AdminKeys().List(ctx, 0, 0)
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
	enrollments, _, err := r.Store.EnrollmentKeys().List(ctx, 0, 0)
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
