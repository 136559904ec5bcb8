package action_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/rollout/fleettest"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/store/lease"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/require"
)

// mortal is the store of a server that dies at its nth write of an order; 0: never.
func mortal(s store.Store, at int) *fleettest.Mortal {
	return fleettest.NewMortal(s, at, at%2 == 0).CountLeases()
}

// bulkOrder gives an order for agents and returns its action.
type bulkOrder func(ctx context.Context, s *action.Service, ids []string) (fleet.Action, error)

// bulkOrders are the orders that end the same, wherever a server dies. "gone" does not exist.
var bulkOrders = map[string]bulkOrder{
	"upgrade": func(ctx context.Context, s *action.Service, ids []string) (fleet.Action, error) {
		return s.Upgrade(ctx, order("1.1.0", ids...))
	},
	"stage": func(ctx context.Context, s *action.Service, ids []string) (fleet.Action, error) {
		return s.Upgrade(ctx, stageOrder("", "1.1.0", ids...))
	},
	"rollback": func(ctx context.Context, s *action.Service, ids []string) (fleet.Action, error) {
		all, err := s.Rollback(ctx, action.RollbackOrder{AgentIDs: ids, Actor: "ann"})
		if err != nil || len(all) != 1 {
			return fleet.Action{}, cmp.Or(err, fmt.Errorf("%d actions", len(all)))
		}
		return all[0], nil
	},
	"revoke": func(ctx context.Context, s *action.Service, ids []string) (fleet.Action, error) {
		return s.Unenroll(ctx, action.UnenrollOrder{AgentIDs: ids, Revoke: true, Actor: "ann"})
	},
	"unenrol": func(ctx context.Context, s *action.Service, ids []string) (fleet.Action, error) {
		return s.Unenroll(ctx, action.UnenrollOrder{AgentIDs: ids, Actor: "ann"})
	},
	"reassign": func(ctx context.Context, s *action.Service, ids []string) (fleet.Action, error) {
		return s.Reassign(ctx, action.ReassignOrder{PolicyID: "other", AgentIDs: ids, Actor: "ann"})
	},
	"tag": func(ctx context.Context, s *action.Service, ids []string) (fleet.Action, error) {
		return s.Tag(ctx, action.TagsOrder{Add: []string{"new"}, Remove: []string{"old"}, AgentIDs: ids, Actor: "ann"})
	},
	"diagnostics": func(ctx context.Context, s *action.Service, ids []string) (fleet.Action, error) {
		return s.RequestDiagnostics(ctx, action.DiagnosticsOrder{AgentIDs: ids, Actor: "ann"})
	},
	"settings": func(ctx context.Context, s *action.Service, ids []string) (fleet.Action, error) {
		return s.Create(ctx, action.Order{Type: agentapi.ActionSettings, Data: event.Data(map[string]any{"log_level": "debug"}), AgentIDs: ids, Actor: "ann"})
	},
	"cancel": func(ctx context.Context, s *action.Service, ids []string) (fleet.Action, error) {
		return s.Cancel(ctx, "up", "ann")
	},
}

var bulkIDs = []string{"a", "b", "c", "d", "e"}

// bulkWorld has the agents of bulkIDs in pages of two, with all that the orders need.
func bulkWorld(t *testing.T, kind string) *world {
	t.Helper()
	w := newWorld(t, bulkIDs...)
	w.must(w.store.Policies().Create(t.Context(), fleet.Policy{ID: "other", Name: "other"}))
	for _, id := range bulkIDs {
		w.change(id, func(a *fleet.Agent) { a.Tags, a.StagedVersions = []string{"old"}, []string{} })
		if kind == "rollback" {
			w.keep(id, "0.9.0", time.Hour)
		}
	}
	if kind == "cancel" {
		expires := w.now.Add(time.Hour)
		for _, id := range bulkIDs {
			w.change(id, func(a *fleet.Agent) { a.BeginUpgrade("up", "1.1.0", w.now) })
		}
		_, err := w.store.Actions().Create(t.Context(), fleet.Action{
			ID: "up", Type: agentapi.ActionUpgrade, Agents: bulkIDs, Actioned: len(bulkIDs), CreatedAt: w.now, CreatedBy: "ann", Expiration: &expires,
			Data: event.Data(agentapi.UpgradeData{Version: "1.1.0"}),
		})
		w.must(err)
	}
	return w
}

func (w *world) server(m *fleettest.Mortal) *action.Service {
	w.t.Helper()
	s := w.serve(m)
	s.SetPage(2)
	return s
}

// openOrders returns how many orders are accepted and not carried out.
func (w *world) openOrders() int {
	w.t.Helper()
	_, n, err := w.store.AcceptedOrders().List(w.t.Context(), 0, 0)
	w.must(err)
	return n
}

// untilCarriedOut waits until no order is open.
func (w *world) untilCarriedOut() {
	w.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); w.openOrders() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatal("after 20 s the order is not carried out")
		}
	}
}

// leftBehind returns what is stored of orders, without ids that are chosen at random.
func (w *world) leftBehind() string {
	w.t.Helper()
	ctx := w.t.Context()
	actions, err := w.store.Actions().After(ctx, 0, 100)
	w.must(err)
	var text strings.Builder
	var names []string
	for i, a := range actions {
		names = append(names, a.ID, fmt.Sprint("action ", i))
	}
	name := strings.NewReplacer(names...)
	for _, a := range actions {
		fmt.Fprintf(&text, "%s %s for %v of %d cancelled %t\n", name.Replace(a.ID), a.Type, a.Agents, a.Actioned, a.CancelledAt != nil)
		for _, id := range append([]string{"gone"}, bulkIDs...) {
			if r := w.result(a, id); r != nil {
				fmt.Fprintf(&text, "  %s: %q %q\n", id, r.Message, r.Error)
			}
		}
	}
	for _, id := range bulkIDs {
		a := w.agent(id)
		fmt.Fprintf(&text, "%s: active %t %q asked %t policy %s tags %v upgrade %q by %s, %d diagnostics\n", id, a.Active, a.UnenrolledReason, a.UnenrollmentStartedAt != nil,
			a.PolicyID, a.Tags, a.UpgradeStatus, name.Replace(a.UpgradeActionID), len(a.Diagnostics))
	}
	entries, _, err := w.store.Audit().List(ctx, store.AuditQuery{Limit: 100})
	w.must(err)
	for _, e := range entries {
		fmt.Fprintf(&text, "%s %s %s\n", e.Verb, name.Replace(e.Subject), name.Replace(e.Text))
	}
	return text.String()
}

// An order for many agents ends the same wherever the server dies that carries it out: the next
// server continues it by itself, or because the caller asks again.
func TestAcceptedOrderIsCarriedOutAfterACrashAtAnyWrite(t *testing.T) {
	require.Time(t, "kills the server at every write")
	for kind, give := range bulkOrders {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			run := func(at int) (end string, writes int) {
				w := bulkWorld(t, kind)
				ids := append([]string{"gone"}, bulkIDs...)
				m := mortal(w.store, at)
				_, err := give(t.Context(), w.server(m), ids)
				if (at > 0) != errors.Is(err, fleettest.ErrDead) {
					t.Fatalf("killed at write %d, the answer was %v", at, err)
				}
				if at > 0 {
					next := w.server(mortal(w.store, 0))
					if accepted := w.openOrders() > 0; !accepted && at <= 2 || accepted && at%3 == 0 {
						_, err = give(t.Context(), next, ids)
						w.must(err)
					} else {
						w.must(next.ContinueOrders(t.Context()))
						w.untilCarriedOut()
					}
				}
				if n := w.openOrders(); n > 0 {
					t.Errorf("killed at write %d, %d orders are left", at, n)
				}
				return w.leftBehind(), m.Writes()
			}
			whole, writes := run(0)
			if writes < 5 {
				t.Errorf("it makes only %d writes", writes)
			}
			for at := 1; at <= writes; at++ {
				if end, _ := run(at); end != whole {
					t.Errorf("killed at write %d it ends as\n%s\nwant\n%s", at, end, whole)
				}
			}
		})
	}
}

// A client that gives up has ordered all the same, and the audit trail says what was done.
func TestOrderIsCarriedOutWithoutItsCaller(t *testing.T) {
	for kind, give := range bulkOrders {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			whole := bulkWorld(t, kind)
			_, err := give(t.Context(), whole.server(mortal(whole.store, 0)), bulkIDs)
			whole.must(err)

			w := bulkWorld(t, kind)
			ctx, giveUp := context.WithCancel(t.Context())
			s := w.server(mortal(&actsBeforeWrite{w.store, giveUp}, 0))
			if _, err := give(ctx, s, bulkIDs); fleet.KindOf(err) != fleet.Unavailable || !strings.Contains(err.Error(), "the server carries the order out") {
				t.Fatalf("the caller that gave up got %v", err)
			}
			w.untilCarriedOut()
			if got, want := w.leftBehind(), whole.leftBehind(); got != want {
				t.Errorf("without its caller it ends as\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// actsBeforeWrite calls act when an order that was accepted begins with its agents.
type actsBeforeWrite struct {
	store.Store
	act func()
}

func (s *actsBeforeWrite) Agents() store.Agents { return actingAgents{s.Store.Agents(), s} }

type actingAgents struct {
	store.Agents
	s *actsBeforeWrite
}

func (a actingAgents) Sorted(ctx context.Context, ids []string) ([]string, error) {
	a.s.act()
	time.Sleep(10 * time.Millisecond) // so that the caller notices before the order is done
	return a.Agents.Sorted(ctx, ids)
}

// The same call again, while the first one is carried out, is the same order.
func TestRepeatedOrderJoinsTheFirst(t *testing.T) {
	for kind, give := range bulkOrders {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := bulkWorld(t, kind)
			hold, held := make(chan struct{}), make(chan struct{})
			once := sync.OnceFunc(func() { close(held); <-hold })
			s := w.server(mortal(&actsBeforeWrite{w.store, once}, 0))
			first := make(chan fleet.Action, 1)
			go func() {
				a, err := give(t.Context(), s, bulkIDs)
				if err != nil {
					t.Error(err)
				}
				first <- a
			}()
			<-held
			second := make(chan fleet.Action, 1)
			go func() {
				a, err := give(t.Context(), s, bulkIDs)
				if err != nil {
					t.Error(err)
				}
				second <- a
			}()
			time.Sleep(20 * time.Millisecond)
			close(hold)
			if a, b := <-first, <-second; a.ID == "" || a.ID != b.ID || !slices.Equal(a.Agents, bulkIDs) {
				t.Errorf("the two calls made %s and %s, for %v", a.ID, b.ID, a.Agents)
			}
		})
	}
}

// A cancel, interrupted or not, is complete when it is asked for again.
func TestRepeatedCancelContinues(t *testing.T) {
	w := bulkWorld(t, "cancel")
	w.must(w.store.Actions().Cancel(t.Context(), "up", w.now)) // a server died here
	_, err := w.service.Cancel(t.Context(), "up", "ann")
	w.must(err)
	for _, id := range bulkIDs {
		if w.upgrading(id) {
			t.Errorf("%s still has the mark of the cancelled upgrade", id)
		}
	}
}

func TestOrderInProgressIsListedAndCancelled(t *testing.T) {
	w := bulkWorld(t, "upgrade")
	hold, held := make(chan struct{}), make(chan struct{})
	once := sync.OnceFunc(func() { close(held); <-hold })
	s := w.server(mortal(&actsBeforeWrite{w.store, once}, 0))
	go func() { _, _ = s.Upgrade(t.Context(), order("1.1.0", bulkIDs...)) }()
	<-held
	list, err := s.ListWithPolicies(t.Context(), store.ActionQuery{Limit: 10}, 5)
	w.must(err)
	if len(list) != 1 || list[0].Preparing == nil || *list[0].Preparing != (action.Preparing{Agents: 5}) || list[0].State != fleet.ActionInProgress || list[0].Actioned != 5 {
		t.Fatalf("the list is %+v", list)
	}
	id := list[0].ID
	st, err := s.Status(t.Context(), id, 5)
	w.must(err)
	if st.Preparing == nil || st.ID != id {
		t.Errorf("the status is %+v", st)
	}
	_, _, err = s.Hosts(t.Context(), id, action.HostQuery{Limit: 10})
	w.wantKind(err, fleet.Conflict, "is being prepared, 0 of its 5 agents so far")
	w.now = w.now.Add(fleet.CreateGrace + time.Second)
	w.change("a", func(a *fleet.Agent) { a.BeginUpgrade(id, "1.1.0", w.now.Add(-2*fleet.CreateGrace)) }) // as the order does
	w.must(s.ReconcileUpgradesOnce(t.Context()))
	if !w.upgrading("a") {
		t.Error("the mark of an order that is being carried out was cleared")
	}
	w.change("a", func(a *fleet.Agent) { a.CancelUpgrade(id, w.now) })
	cancelled := make(chan error, 1)
	go func() { _, err := s.Cancel(t.Context(), id, "ben"); cancelled <- err }()
	time.Sleep(20 * time.Millisecond)
	close(hold)
	w.must(<-cancelled)
	if st := w.status(fleet.Action{ID: id}); st.State != fleet.ActionCancelled || st.Preparing != nil {
		t.Errorf("after the cancel it is %s, preparing %v", st.State, st.Preparing)
	}
	for _, id := range bulkIDs {
		if w.upgrading(id) {
			t.Errorf("%s still has the mark of the cancelled upgrade", id)
		}
	}
}

// A server that stops leaves its orders to the next one.
func TestStoppingServerInterruptsItsOrders(t *testing.T) {
	w := bulkWorld(t, "upgrade")
	hold, held := make(chan struct{}), make(chan struct{})
	once := sync.OnceFunc(func() { close(held); <-hold })
	s := w.server(mortal(&actsBeforeWrite{w.store, once}, 0))
	answered := make(chan error, 1)
	go func() { _, err := s.Upgrade(t.Context(), order("1.1.0", bulkIDs...)); answered <- err }()
	<-held
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() { s.CarryOutOrders(ctx); close(stopped) }()
	stop()
	time.Sleep(10 * time.Millisecond)
	close(hold)
	<-stopped
	if err := <-answered; err == nil || w.openOrders() != 1 {
		t.Fatalf("the caller got %v, %d orders are open", err, w.openOrders())
	}
	next := w.server(mortal(w.store, 0))
	w.must(next.ContinueOrders(t.Context()))
	w.untilCarriedOut()
	for _, id := range bulkIDs {
		if !w.upgrading(id) {
			t.Errorf("%s is not upgrading", id)
		}
	}
}

// pageTime is how long a server that shares its store takes for each page of an order, in virtual
// time. An order then lasts longer than a lease, which is renewed after each page.
const pageTime = lease.DefaultTTL - lease.DefaultRenew

// sharing returns a server that shares the store with others.
func (w *world) sharing(m *fleettest.Mortal, name string) *action.Service {
	w.t.Helper()
	s := w.serve(&faultyStore{Store: m, getMany: func() error { time.Sleep(pageTime); return nil }})
	s.Lease = &lease.Owner{Leases: m.Leases(), Name: name}
	s.SetPage(2)
	return s
}

// writesOf returns how often each agent was written since it was enrolled.
func (w *world) writesOf(ids []string) (all []int64) {
	for _, id := range ids {
		all = append(all, w.agent(id).Revision)
	}
	return all
}

// carryOutOrders runs the loop of a server until the returned function is called.
func carryOutOrders(t *testing.T, s *action.Service) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { s.CarryOutOrders(ctx); close(ended) }()
	return func() { cancel(); <-ended }
}

// Servers share a store, and one dies at any of its writes. Another one carries the order out as
// soon as the lease has expired, not earlier, and does not mark an agent again.
func TestOrderOfADeadServerIsTakenOverByAnother(t *testing.T) {
	for kind, give := range bulkOrders {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			run := func(at int) (end string, agents []int64, writes int) {
				synctest.Test(t, func(t *testing.T) {
					w := bulkWorld(t, kind)
					m, other := mortal(w.store, at), mortal(w.store, 0)
					_, err := give(t.Context(), w.sharing(m, "first"), bulkIDs)
					if (at > 0) != errors.Is(err, fleettest.ErrDead) {
						t.Fatalf("killed at write %d, the answer was %v", at, err)
					}
					leases, _, err := w.store.Leases().List(t.Context(), 0, 0)
					w.must(err)
					died := time.Now()
					stop := carryOutOrders(t, w.sharing(other, "second"))
					time.Sleep(lease.DefaultTTL - time.Millisecond)
					if n := other.Writes(); len(leases) > 0 && n > 0 {
						t.Errorf("killed at write %d, another server made %d writes while the lease was in force", at, n)
					}
					for w.openOrders() > 0 && time.Since(died) < time.Minute {
						time.Sleep(100 * time.Millisecond)
					}
					took, most := time.Since(died), lease.DefaultTTL+action.OrdersInterval+time.Duration(len(bulkIDs))*pageTime
					if n := w.openOrders(); n > 0 || took > most {
						t.Errorf("killed at write %d, %d orders are open after %v, want none after %v", at, n, took, most)
					}
					stop()
					end, agents, writes = w.leftBehind(), w.writesOf(bulkIDs), m.Writes()
				})
				return end, agents, writes
			}
			whole, agents, writes := run(0)
			if writes < 7 { // as without leases, and the lease is taken and ended
				t.Errorf("it makes only %d writes", writes)
			}
			// Of these, no mark says that an agent has its part: it is given the same again.
			unmarked := kind == "tag" || kind == "unenrol"
			for at := 2; at < writes; at++ { // the last one deletes the lease of an order that is done
				end, got, _ := run(at)
				if end != whole {
					t.Errorf("killed at write %d it ends as\n%s\nwant\n%s", at, end, whole)
				}
				if !unmarked && !slices.Equal(got, agents) {
					t.Errorf("killed at write %d the revisions of the agents are %d, want %d: some were written twice", at, got, agents)
				}
			}
		})
	}
}

// While the server lives that carries an order out, another one leaves it alone, however long it
// takes. The same call at the other one means the same order.
func TestOrderOfALivingServerIsLeftToIt(t *testing.T) {
	for kind, give := range bulkOrders {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := bulkWorld(t, kind)
				other := mortal(w.store, 0)
				first, second := w.sharing(mortal(w.store, 0), "first"), w.sharing(other, "second")
				began := time.Now()
				type answer struct {
					a   fleet.Action
					err error
				}
				answers := make(chan answer, 2)
				ask := func(s *action.Service) { a, err := give(t.Context(), s, bulkIDs); answers <- answer{a, err} }
				go ask(first)
				time.Sleep(time.Second) // until it has the lease
				stop := carryOutOrders(t, second)
				go ask(second)
				one, two := <-answers, <-answers
				stop()
				w.must(cmp.Or(one.err, two.err))
				if took := time.Since(began); took < 2*lease.DefaultTTL {
					t.Fatalf("the order took only %v: it shows nothing about leases of %v", took, lease.DefaultTTL)
				}
				if one.a.ID != two.a.ID || !slices.Equal(one.a.Agents, bulkIDs) {
					t.Errorf("the two calls made %s and %s, for %v", one.a.ID, two.a.ID, one.a.Agents)
				}
				if n := other.Writes(); n > 1 { // it has tried to accept the order
					t.Errorf("the other server made %d writes", n)
				}
			})
		})
	}
}
