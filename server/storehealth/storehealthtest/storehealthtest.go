// Package storehealthtest provides a store whose outages a test controls.
package storehealthtest

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// Mode is the behavior of the store.
type Mode int32

// Values of Mode.
const (
	Available   Mode = iota
	Unavailable      // every call fails at once
	Hanging          // every call blocks until its context ends
)

// Store wraps a store and fails the calls that agents' messages cause.
type Store struct {
	store.Store
	mode atomic.Int32
	// Asked counts the calls that the mode failed, without pings.
	Asked atomic.Int64

	mu     sync.Mutex
	before func(call string) error
}

// Set sets the mode.
func (s *Store) Set(m Mode) { s.mode.Store(int32(m)) }

// Before makes the store call f before every call that does not fail. If f returns an
// error, it replaces the call. nil removes f.
func (s *Store) Before(f func(call string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = f
}

func (s *Store) gate(ctx context.Context, call string) error {
	if call != "ping" && Mode(s.mode.Load()) != Available {
		s.Asked.Add(1)
	}
	switch Mode(s.mode.Load()) {
	case Unavailable:
		return fleet.Errorf(fleet.Unavailable, "the store is switched off")
	case Hanging:
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Minute): // the caller has no timeout
			return fleet.Errorf(fleet.Internal, "no caller gave up %s for a minute", call)
		}
	}
	s.mu.Lock()
	before := s.before
	s.mu.Unlock()
	if before != nil && call != "ping" {
		return before(call)
	}
	return nil
}

// through makes a call unless the mode fails it.
func through[T any](ctx context.Context, s *Store, call string, do func() (T, error)) (T, error) {
	if err := s.gate(ctx, call); err != nil {
		var none T
		return none, err
	}
	return do()
}

// Ping implements store.Store.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.gate(ctx, "ping"); err != nil {
		return err
	}
	return s.Store.Ping(ctx)
}

// Agents implements store.Store.
func (s *Store) Agents() store.Agents { return agents{s.Store.Agents(), s} }

// Actions implements store.Store.
func (s *Store) Actions() store.Actions { return actions{s.Store.Actions(), s} }

// Results implements store.Store.
func (s *Store) Results() store.Results { return results{s.Store.Results(), s} }

// Events implements store.Store.
func (s *Store) Events() store.Events { return events{s.Store.Events(), s} }

// Packages implements store.Store.
func (s *Store) Packages() store.Collection[fleet.Package] {
	return collection[fleet.Package]{s.Store.Packages(), s}
}

// EnrollmentKeys implements store.Store.
func (s *Store) EnrollmentKeys() store.Collection[fleet.EnrollmentKey] {
	return collection[fleet.EnrollmentKey]{s.Store.EnrollmentKeys(), s}
}

type agents struct {
	store.Agents
	s *Store
}

func (a agents) Get(ctx context.Context, id string) (fleet.Agent, error) {
	return through(ctx, a.s, "agents.get", func() (fleet.Agent, error) { return a.Agents.Get(ctx, id) })
}

func (a agents) ByAccessKey(ctx context.Context, keyID string) (fleet.Agent, error) {
	return through(ctx, a.s, "agents.by_access_key", func() (fleet.Agent, error) { return a.Agents.ByAccessKey(ctx, keyID) })
}

func (a agents) Update(ctx context.Context, doc fleet.Agent) (int64, error) {
	return through(ctx, a.s, "agents.update", func() (int64, error) { return a.Agents.Update(ctx, doc) })
}

func (a agents) Report(ctx context.Context, r store.Report) (int64, error) {
	return through(ctx, a.s, "agents.report", func() (int64, error) { return a.Agents.Report(ctx, r) })
}

func (a agents) Touch(ctx context.Context, touches []fleet.Touch) error {
	_, err := through(ctx, a.s, "agents.touch", func() (struct{}, error) { return struct{}{}, a.Agents.Touch(ctx, touches) })
	return err
}

func (a agents) Leavers(ctx context.Context, afterID string, limit int) ([]fleet.Agent, error) {
	return through(ctx, a.s, "agents.leavers", func() ([]fleet.Agent, error) { return a.Agents.Leavers(ctx, afterID, limit) })
}

func (a agents) Upgrading(ctx context.Context, after store.UpgradingSince, limit int) ([]fleet.Agent, error) {
	return through(ctx, a.s, "agents.upgrading", func() ([]fleet.Agent, error) { return a.Agents.Upgrading(ctx, after, limit) })
}

type actions struct {
	store.Actions
	s *Store
}

func (a actions) Get(ctx context.Context, id string) (fleet.Action, error) {
	return through(ctx, a.s, "actions.get", func() (fleet.Action, error) { return a.Actions.Get(ctx, id) })
}

func (a actions) For(ctx context.Context, id string, agentIDs ...string) ([]fleet.Action, error) {
	return through(ctx, a.s, "actions.get", func() ([]fleet.Action, error) { return a.Actions.For(ctx, id, agentIDs...) })
}

func (a actions) Pending(ctx context.Context, agentID string, after int64, now time.Time, limit int) ([]fleet.Action, error) {
	return through(ctx, a.s, "actions.pending", func() ([]fleet.Action, error) { return a.Actions.Pending(ctx, agentID, after, now, limit) })
}

func (a actions) After(ctx context.Context, after int64, limit int) ([]fleet.Action, error) {
	return through(ctx, a.s, "actions.after", func() ([]fleet.Action, error) { return a.Actions.After(ctx, after, limit) })
}

func (a actions) LastSeq(ctx context.Context) (int64, error) {
	return through(ctx, a.s, "actions.last_seq", func() (int64, error) { return a.Actions.LastSeq(ctx) })
}

type results struct {
	store.Results
	s *Store
}

func (r results) Answered(ctx context.Context, actionID string, agentIDs []string) (map[string]bool, error) {
	return through(ctx, r.s, "results.get", func() (map[string]bool, error) { return r.Results.Answered(ctx, actionID, agentIDs) })
}

func (r results) Get(ctx context.Context, actionID, agentID string) (fleet.Result, error) {
	return through(ctx, r.s, "results.get", func() (fleet.Result, error) { return r.Results.Get(ctx, actionID, agentID) })
}

type events struct {
	store.Events
	s *Store
}

func (e events) After(ctx context.Context, after int64, limit int) ([]fleet.Event, error) {
	return through(ctx, e.s, "events.after", func() ([]fleet.Event, error) { return e.Events.After(ctx, after, limit) })
}

type collection[T any] struct {
	store.Collection[T]
	s *Store
}

func (c collection[T]) Get(ctx context.Context, id string) (T, error) {
	return through(ctx, c.s, "get", func() (T, error) { return c.Collection.Get(ctx, id) })
}
