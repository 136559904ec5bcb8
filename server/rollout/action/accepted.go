package action

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/audit"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/store/lease"
)

const (
	// OrdersInterval is how often CarryOutOrders looks for orders that no server carries out.
	// There are some after a server has died, and when the store was away.
	OrdersInterval = 5 * time.Second
	// joinInterval is how often a caller looks whether another server has carried out its order.
	joinInterval = 500 * time.Millisecond
	// keepProgressEvery is after how many agents the progress of an order is stored, for readers
	// at other servers. Each write repeats the ids of all agents, up to 4 MB.
	keepProgressEvery = 10_000
)

// terms are what an operator has ordered. They are stored with an accepted order, so that a
// server makes the same step from them after a restart.
type terms interface {
	// step returns what the order does to each agent. It fails if none can follow.
	step(ctx context.Context, s *Service, a *fleet.Action, agentIDs []string) (step, error)
}

// Kinds of orders that several places name. An order to cancel an action has no terms.
const (
	cancelKind  = "cancel"
	upgradeKind = "upgrade" // and to stage
)

var kinds = map[string]func() terms{
	upgradeKind: func() terms { return new(UpgradeOrder) },
	"rollback":  func() terms { return new(RollbackOrder) },
	"unenrol":   func() terms { return new(UnenrollOrder) },
	"reassign":  func() terms { return new(ReassignOrder) },
	"tag":       func() terms { return new(TagsOrder) },
	"other":     func() terms { return new(Order) },
}

// keyOf returns the id of an accepted order: a digest of what was asked for, so that the same call
// again means the same order while it is being carried out. data is what the terms leave out.
func keyOf(kind string, t terms, data []byte, actor string, agentIDs []string) string {
	sum := sha256.New()
	for _, part := range append([]string{kind, string(event.Data(t)), string(data), actor}, fleet.SortedIDs(agentIDs)...) {
		_, _ = fmt.Fprintf(sum, "%d %s\n", len(part), part)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// again waits for the accepted orders of a key, and returns their actions, or false if there are
// none. A key that has several orders is a prefix of their ids.
func (s *Service) again(ctx context.Context, key string) ([]fleet.Action, bool, error) {
	orders, _, err := s.Store.AcceptedOrders().List(ctx, 0, 0)
	if err != nil {
		return nil, false, err
	}
	var actions []fleet.Action
	for _, o := range slices.Backward(orders) { // the oldest first
		if strings.HasPrefix(o.ID, key) {
			a, err := s.join(ctx, o.ID)
			if err != nil {
				return actions, true, err
			}
			actions = append(actions, a)
		}
	}
	return actions, len(actions) > 0, nil
}

// carrying are the accepted orders that this server is carrying out.
type carrying struct {
	mu      sync.Mutex
	by      map[string]*carried // by the id of the order
	stopped bool
	running sync.WaitGroup
}

// carried is one of them.
type carried struct {
	id      string
	cancel  context.CancelFunc
	handled atomic.Int64  // agents
	done    chan struct{} // closed at the end; then action and err are set
	action  fleet.Action
	err     error
}

// enter returns the order with the id, and whether it was not carried out here before. The
// caller must then call Service.start or leave.
func (c *carrying) enter(id string) (r *carried, isNew bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r, ok := c.by[id]; ok {
		return r, false, nil
	}
	if c.stopped {
		return nil, false, fleet.Errorf(fleet.Unavailable, "the server is stopping: try again")
	}
	if len(c.by) >= fleet.MaxAcceptedOrders {
		return nil, false, fleet.Errorf(fleet.Unavailable, "%d orders are being carried out, no more are accepted: wait until one is done", len(c.by))
	}
	if c.by == nil {
		c.by = map[string]*carried{}
	}
	r = &carried{id: id, done: make(chan struct{}), cancel: func() {}}
	c.by[id] = r
	c.running.Add(1)
	return r, true, nil
}

// leave ends an order here.
func (c *carrying) leave(r *carried, a fleet.Action, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.by, r.id)
	r.action, r.err = a, err
	close(r.done)
	c.running.Done()
}

func (c *carrying) setCancel(r *carried, cancel context.CancelFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.cancel = cancel
	if c.stopped {
		cancel()
	}
}

// handledOf returns how many agents of an order were handled here, 0 if it is not carried out here.
func (c *carrying) handledOf(id string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.by[id]; r != nil {
		return int(r.handled.Load())
	}
	return 0
}

// stop interrupts all orders, and returns when they have ended here.
func (c *carrying) stop() {
	c.mu.Lock()
	c.stopped = true
	for _, r := range c.by {
		r.cancel()
	}
	c.mu.Unlock()
	c.running.Wait()
}

// wait returns the outcome of the order, or an error when ctx ends: the order goes on.
func (r *carried) wait(ctx context.Context) (fleet.Action, error) {
	select {
	case <-r.done:
		return r.action, r.err
	case <-ctx.Done():
		return fleet.Action{}, fleet.Errorf(fleet.Unavailable, "the caller stopped waiting, and the server carries the order out: %w", ctx.Err())
	}
}

// accept stores the orders, carries them out, and returns their actions. From the moment that
// they are stored they are carried out even if the caller goes away or this process dies. If the
// same order is being carried out, accept waits for that one instead. Several orders are carried
// out one after the other; accept returns the actions of the first ones, with an error.
func (s *Service) accept(ctx context.Context, orders []fleet.AcceptedOrder, steps []step) ([]fleet.Action, error) {
	runs := make([]*carried, len(orders))
	var failed error
	for i, o := range orders {
		var isNew bool
		var err error
		if runs[i], isNew, err = s.carrying.enter(o.ID); err == nil && isNew {
			err = s.begin(ctx, runs[i], o, &steps[i], runs[:i])
		}
		if err != nil {
			runs, failed = runs[:i], err
			break
		}
	}
	var out []fleet.Action
	for i, r := range runs {
		a, err := r.wait(ctx)
		if errors.Is(err, errElsewhere) {
			a, err = s.join(ctx, orders[i].ID)
		}
		if err != nil {
			return out, cmp.Or(failed, err)
		}
		out = append(out, a)
	}
	return out, failed
}

// errElsewhere says that another server carries an order out, or that the same order was
// accepted earlier.
var errElsewhere = errors.New("another server carries the order out")

// begin stores a new order, and starts to carry it out after others.
func (s *Service) begin(ctx context.Context, r *carried, o fleet.AcceptedOrder, do *step, after []*carried) error {
	err := s.Store.AcceptedOrders().Create(ctx, o)
	if fleet.KindOf(err) == fleet.Conflict && err != nil { // it was accepted earlier
		s.carrying.leave(r, fleet.Action{}, errElsewhere)
		return nil
	}
	if err == nil {
		err = s.Store.Audit().Append(ctx, []fleet.AuditEntry{o.Entry})
	}
	if err != nil {
		s.carrying.leave(r, fleet.Action{}, err)
		return err
	}
	s.start(ctx, r, o, do, after...)
	return nil
}

// start carries the order out in the background, after others. do is nil if another process may
// have begun it.
func (s *Service) start(ctx context.Context, r *carried, o fleet.AcceptedOrder, do *step, after ...*carried) {
	// The entries of the audit trail belong to no call any longer, which may be over.
	ctx = audit.Begin(context.WithoutCancel(ctx), o.Entry.Why)
	ctx, cancel := context.WithCancel(ctx)
	s.carrying.setCancel(r, cancel)
	go func() {
		defer cancel()
		for _, before := range after {
			<-before.done
		}
		a, err := s.carryOut(ctx, r, o, do)
		if err != nil && !errors.Is(err, errElsewhere) {
			s.Log.Warn("an order is not carried out yet, and is continued", "kind", o.Kind, "action", o.Action.ID, "agents", len(o.AgentIDs), "handled", r.handled.Load(), "error", err)
		}
		s.carrying.leave(r, a, err)
	}()
}

// join waits for an order that was accepted earlier. If no server carries it out, this one does.
func (s *Service) join(ctx context.Context, id string) (fleet.Action, error) {
	actionID := ""
	for {
		o, err := s.Store.AcceptedOrders().Get(ctx, id)
		switch {
		case err != nil && fleet.KindOf(err) == fleet.NotFound && actionID != "":
			return s.Store.Actions().Get(ctx, actionID)
		case err != nil:
			return fleet.Action{}, err
		}
		actionID = o.Action.ID
		r, isNew, err := s.carrying.enter(id)
		if err != nil {
			return fleet.Action{}, err
		}
		if isNew {
			s.start(ctx, r, o, nil)
		}
		if a, err := r.wait(ctx); !errors.Is(err, errElsewhere) {
			return a, err
		}
		select {
		case <-ctx.Done():
			return fleet.Action{}, fleet.Errorf(fleet.Unavailable, "the caller stopped waiting, and the server carries the order out: %w", ctx.Err())
		case <-time.After(joinInterval):
		}
	}
}

// CarryOutOrders continues accepted orders that no server carries out, once at the start and
// every OrdersInterval, until ctx ends. Then it interrupts those that this server carries out.
func (s *Service) CarryOutOrders(ctx context.Context) {
	lease.Rounds{Work: "accepted orders", Interval: OrdersInterval, AtOnce: true, Log: s.Log}.Run(ctx, func(ctx context.Context) error {
		if s.Health.Away() != nil {
			return nil
		}
		return s.ContinueOrders(ctx)
	})
	s.carrying.stop()
	if s.Lease != nil {
		if err := s.Lease.ReleaseAll(ctx); err != nil {
			s.Log.Debug("the leases of orders expire", "error", err)
		}
	}
}

// ContinueOrders begins to carry out the accepted orders that no server carries out.
func (s *Service) ContinueOrders(ctx context.Context) error {
	orders, _, err := s.Store.AcceptedOrders().List(ctx, 0, 0)
	if err != nil {
		return err
	}
	for _, o := range slices.Backward(orders) { // the oldest first
		if r, isNew, err := s.carrying.enter(o.ID); err == nil && isNew {
			s.start(ctx, r, o, nil)
		}
	}
	return nil
}

// leaseOf is the name of the lease whose owner carries an order out.
func leaseOf(o *fleet.AcceptedOrder) string { return "order " + o.ID }

// own takes or renews the lease of an order. Without leases, the store belongs to this process.
func (s *Service) own(ctx context.Context, o *fleet.AcceptedOrder) error {
	if s.Lease == nil {
		return ctx.Err()
	}
	owned, err := s.Lease.Take(ctx, leaseOf(o))
	if err == nil && !owned {
		err = errElsewhere
	}
	return err
}

// carryOut carries an order out, from its first agent on, and removes it. All of it can be
// repeated. After an error the order stays, and is continued by CarryOutOrders.
func (s *Service) carryOut(ctx context.Context, r *carried, o fleet.AcceptedOrder, do *step) (a fleet.Action, err error) {
	defer func() {
		if s.Lease != nil && err != nil && !errors.Is(err, errElsewhere) {
			_ = s.Lease.Release(context.WithoutCancel(ctx), leaseOf(&o)) // or it expires
		}
	}()
	if err := s.own(ctx, &o); err != nil {
		return fleet.Action{}, err
	}
	if do == nil {
		if err := s.Store.Audit().Append(ctx, []fleet.AuditEntry{o.Entry}); err != nil {
			return fleet.Action{}, err
		}
	}
	if o.Kind == cancelKind {
		a, err = s.carryOutCancel(ctx, r, &o)
		if err != nil && fleet.KindOf(err) != fleet.NotFound { // NotFound: there is nothing to cancel
			return fleet.Action{}, err
		}
	} else if a, err = s.carryOutAction(ctx, r, &o, do); err != nil {
		return fleet.Action{}, err
	}
	if derr := s.Store.AcceptedOrders().Delete(ctx, o.ID); derr != nil {
		return fleet.Action{}, derr
	}
	if s.Lease != nil {
		if lerr := s.Lease.End(ctx, leaseOf(&o)); lerr != nil {
			s.Log.Debug("the lease of an order expires", "error", lerr)
		}
	}
	return a, err
}

func (s *Service) carryOutAction(ctx context.Context, r *carried, o *fleet.AcceptedOrder, do *step) (fleet.Action, error) {
	a := o.Action
	if do == nil {
		created, err := store.Optional(s.Store.Actions().Get(ctx, a.ID))
		if err != nil {
			return fleet.Action{}, err
		}
		if created != nil {
			return *created, s.ended(ctx, o, *created)
		}
		if do, err = s.resumed(ctx, o); err != nil {
			return fleet.Action{}, err
		}
	}
	a, err := s.execute(ctx, a, o.AgentIDs, *do, func(n int) error {
		before := r.handled.Load()
		r.handled.Add(int64(n))
		if before/keepProgressEvery != r.handled.Load()/keepProgressEvery && int(r.handled.Load()) < len(o.AgentIDs) {
			if err := s.keepProgress(ctx, o, int(r.handled.Load())); err != nil {
				return err
			}
		}
		return s.own(ctx, o)
	})
	if err != nil {
		return fleet.Action{}, err
	}
	return a, s.ended(ctx, o, a)
}

// keepProgress stores how many agents were handled.
func (s *Service) keepProgress(ctx context.Context, o *fleet.AcceptedOrder, handled int) error {
	stored, err := s.Store.AcceptedOrders().Get(ctx, o.ID)
	if err != nil {
		return err
	}
	stored.Handled = handled
	_, err = s.Store.AcceptedOrders().Update(ctx, stored)
	return err
}

// resumed returns the step of an order that another process may have begun. If the order has
// become impossible, the step refuses the agents that it has not reached.
func (s *Service) resumed(ctx context.Context, o *fleet.AcceptedOrder) (*step, error) {
	var do step
	of, known := kinds[o.Kind]
	var err error = fleet.Errorf(fleet.Invalid, "this version of Muster does not know orders of the kind %q", o.Kind)
	if known {
		t := of()
		if err := json.Unmarshal(o.Terms, t); err != nil {
			return nil, fmt.Errorf("decode the order of action %s: %w", o.Action.ID, err)
		}
		do, err = t.step(ctx, s, &o.Action, o.AgentIDs)
	}
	if kind := fleet.KindOf(err); err != nil && (kind == fleet.Unavailable || kind == fleet.Internal) {
		return nil, err // the next try may succeed
	}
	if err != nil {
		do.check = func(*fleet.Agent) error { return err }
	}
	do.single, do.resumed = false, true
	return &do, nil
}

// ended announces the action of an order that was carried out, and records what was done.
func (s *Service) ended(ctx context.Context, o *fleet.AcceptedOrder, a fleet.Action) error {
	refused := a.Actioned - len(a.Agents)
	s.publishCreated(ctx, a, refused)
	if refused == 0 && len(o.AgentIDs) <= s.pageSize() {
		return nil // the entry about the order says it all
	}
	verb, what := recordedAs(a)
	text := fmt.Sprintf("%s's order is carried out: %s %d of %d agents", a.CreatedBy, what, len(a.Agents), a.Actioned)
	if refused > 0 {
		text += fmt.Sprintf("; %d were refused", refused)
	}
	return s.Store.Audit().Append(ctx, []fleet.AuditEntry{{
		ID: "done-" + o.Entry.ID, At: s.Now.UTC(), Actor: a.CreatedBy, Verb: verb, Subject: a.ID, Why: o.Entry.Why, Text: text,
		Data: event.Data(map[string]any{"count": len(a.Agents), "refused": refused, "done": true}),
	}})
}

// Preparing is how far an accepted order is carried out, whose action does not exist yet.
type Preparing struct{ Handled, Agents int }

// preparing returns the statuses of the accepted orders whose actions do not exist yet, newest first.
func (s *Service) preparing(ctx context.Context) ([]Status, error) {
	orders, _, err := s.Store.AcceptedOrders().List(ctx, 0, 0)
	if err != nil {
		return nil, err
	}
	var out []Status
	for i := range orders {
		o := &orders[i]
		if o.Kind == cancelKind {
			continue
		}
		st := Status{Action: o.Action, State: fleet.ActionInProgress, Errors: []fleet.Result{}, Preparing: &Preparing{
			Handled: max(o.Handled, s.carrying.handledOf(o.ID)), Agents: len(o.AgentIDs),
		}}
		st.Actioned = len(o.AgentIDs)
		out = append(out, st)
	}
	return out, nil
}

// preparingAction returns the status of an action whose order is being carried out, nil if there
// is none.
func (s *Service) preparingAction(ctx context.Context, actionID string) (*Status, error) {
	all, err := s.preparing(ctx)
	for i := range all {
		if all[i].ID == actionID {
			return &all[i], nil
		}
	}
	return nil, err
}
