// Package storehealthtest provides a store whose outages a test controls.
package storehealthtest

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// Mode is the behavior of the store.
type Mode int32

// Values of Mode.
const (
	Available Mode = iota
	Hanging        // every call blocks until its context ends
)

// Store wraps a store and fails the calls that agents' messages cause.
type Store struct {
	store.Store
	mode atomic.Int32
}

// New returns a store that is available.
func New(below store.Store) *Store {
	s := &Store{}
	s.Store = store.Intercept(below, func(ctx context.Context, c store.Call, do func() error) error {
		if ofMessages[c] {
			if err := s.gate(ctx, c.Kind.Name+" "+c.Method); err != nil {
				return err
			}
		}
		return do()
	})
	return s
}

// ofMessages are the calls that agents' messages cause.
var ofMessages = map[store.Call]bool{
	{Kind: store.KindAgents, Method: "Get"}: true, {Kind: store.KindAgents, Method: "ByAccessKey"}: true, {Kind: store.KindAgents, Method: "Update"}: true,
	{Kind: store.KindAgents, Method: "Report"}: true, {Kind: store.KindAgents, Method: "Touch"}: true, {Kind: store.KindAgents, Method: "Leavers"}: true,
	{Kind: store.KindAgents, Method: "Upgrading"}: true,
	{Kind: store.KindActions, Method: "Get"}:      true, {Kind: store.KindActions, Method: "For"}: true, {Kind: store.KindActions, Method: "Pending"}: true,
	{Kind: store.KindActions, Method: "After"}: true, {Kind: store.KindActions, Method: "LastSeq"}: true,
	{Kind: store.KindResults, Method: "Answered"}: true, {Kind: store.KindResults, Method: "Get"}: true,
	{Kind: store.KindEvents, Method: "After"}:            true,
	{Kind: store.KindPackages.Info, Method: "Get"}:       true,
	{Kind: store.KindEnrollmentKeys.Info, Method: "Get"}: true,
}

// Set sets the mode.
func (s *Store) Set(m Mode) { s.mode.Store(int32(m)) }

func (s *Store) gate(ctx context.Context, call string) error {
	if Mode(s.mode.Load()) == Available {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Minute): // the caller has no timeout
		return fleet.Errorf(fleet.Internal, "no caller gave up %s for a minute", call)
	}
}

// Ping implements store.Store.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.gate(ctx, "ping"); err != nil {
		return err
	}
	return s.Store.Ping(ctx)
}
