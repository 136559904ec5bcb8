// Package repository keeps the publishers' signed metadata on the server (a
// repository of The Update Framework, see packaging/trust/tuf): it takes in the
// roots and targets that people signed, signs snapshot and timestamp with the
// server's own key, renews them before they expire, and serves all of it to
// agents. What it refuses agents would refuse; what it accepts they still check.
package repository

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/packaging/trust/tuf"
	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/event"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// Service keeps the files in the store, so that all replicas serve the same, and
// the online keys in Dir, which no store has to keep secret. Open makes one.
type Service struct {
	Dir   string
	Disk  disk.Disk
	Files store.Collection[fleet.TrustFile]
	// Settings remember that the installation has an online key.
	Settings store.Settings
	Events   *event.Stream
	Log      *slog.Logger
	Now      clock.Clock

	keys tuf.Online // the one for new roots first
	// keyless is what to do about it that this server has no key; empty: it has one.
	keyless string
	wake    chan struct{}

	mu sync.Mutex
	// read are the bytes of the files that count now, by digest.
	read map[string][]byte
	// problem is why the last round could not sign.
	problem string
	// rooted says whether there was a root when the files were last read.
	rooted bool
	// told is when each role's expiry was last warned of.
	told map[tuf.Role]time.Time
}

// Open reads the online keys in Dir, and makes the first of the installation. A server
// that has none although there is one somewhere serves, and says so.
func Open(ctx context.Context, s *Service) (*Service, error) {
	s.wake = make(chan struct{}, 1)
	s.read, s.told = map[string][]byte{}, map[tuf.Role]time.Time{}
	return s, s.openKeys(ctx)
}

// View is how the repository stands.
type View struct {
	tuf.Repository
	// Online are the server's public keys, the one for new roots first.
	Online []tuf.PublicKey
	// Problem is why this server cannot sign, empty while it can.
	Problem string
	// Warnings tell which offline roles expire soon and who must sign.
	Warnings []string
}

// View reads how the repository stands.
func (s *Service) View(ctx context.Context) (View, error) {
	state, err := s.load(ctx)
	if err != nil {
		return View{}, err
	}
	v := View{Repository: state.repository, Problem: s.Problem()}
	for _, k := range s.keys {
		v.Online = append(v.Online, k.Public())
	}
	expiries, err := state.repository.OfflineExpiries()
	for _, e := range expiries {
		if w := warning(e, s.Now.UTC()); w != "" {
			v.Warnings = append(v.Warnings, w)
		}
	}
	return v, err
}

// Problem is why this server cannot sign, empty while it can.
func (s *Service) Problem() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.problem == "" && s.rooted {
		return s.keyless
	}
	return s.problem
}

// publishTries bounds how often an upload is tried on top of what another replica
// wrote meanwhile. Others write every few hours.
const publishTries = 4

// Publish takes in roots and targets that people signed, all or none.
func (s *Service) Publish(ctx context.Context, files [][]byte, actor string) error {
	if len(files) == 0 {
		return fleet.FieldError("body.files", "is empty: send signed root and targets files")
	}
	for i, f := range files {
		if _, err := tuf.Inspect(f); err != nil {
			return fleet.FieldError(fmt.Sprintf("body.files[%d]", i), "%w", err)
		}
	}
	for try := 1; ; try++ {
		err := s.publish(ctx, files, actor)
		if err == nil || fleet.KindOf(err) != fleet.Conflict || !errors.Is(err, errChanged) || try == publishTries {
			return err
		}
	}
}

func (s *Service) publish(ctx context.Context, files [][]byte, actor string) error {
	state, err := s.load(ctx)
	if err != nil {
		return err
	}
	now := s.Now.UTC()
	next, err := tuf.Accept(state.repository, now, files...)
	if err != nil {
		return refused(err)
	}
	if s.keyless != "" {
		return fleet.Errorf(fleet.Unavailable, "%s", s.keyless)
	}
	if next, err = s.keys.Sign(next, now); err != nil {
		return refused(err)
	}
	changed, err := tuf.Changes(state.repository, next)
	if err != nil || len(changed) == 0 {
		return err
	}
	if err := s.save(ctx, state, next); err != nil {
		return err
	}
	s.tell(ctx, changed, actor)
	select { // the loop learns when to sign next
	case s.wake <- struct{}{}:
	default:
	}
	return nil
}

// tell publishes what people have changed; what the server signs is no news.
func (s *Service) tell(ctx context.Context, changed []tuf.File, actor string) {
	for _, f := range changed {
		info, err := tuf.Inspect(f.Data)
		if err != nil || !info.Role.Offline() {
			continue
		}
		s.Log.Info("signed metadata published", "file", f.Name, "by", actor, "expires", info.Expires)
		s.Events.Publish(ctx, fleet.Event{Type: fleet.EventTrustPublished, Subject: f.Name, Actor: actor, Data: event.Data(map[string]any{
			"version": info.Version, "expires": info.Expires, "digest": tuf.Digest(f.Data),
		})})
	}
}

// refused turns a verdict about an upload into an answer.
func refused(err error) error {
	e := fleet.FieldError("body.files", "%w", err)
	switch {
	case errors.Is(err, tuf.ErrRollback):
		e.Kind = fleet.Conflict
	case errors.Is(err, tuf.ErrNoOnlineKey):
		e.Message += ": name this server's key in the next root with `muster package keys rotate --online-key server`"
	}
	return e
}
