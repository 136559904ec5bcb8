// Package repository serves the publishers' signed metadata (a repository of The Update
// Framework, see packaging/pkg/trust/tuf). It accepts the roots and targets that publishers
// signed, signs snapshot and timestamp with the server's online key, renews them before
// they expire, and serves all of them to agents. It refuses whatever agents would
// refuse; agents still verify everything.
package repository

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/audit"
	"github.com/muster-fleet/muster/server/store/event"
)

// Config configures a Service. All fields but Now are required.
type Config struct {
	// Dir holds the online keys, so that they stay out of the store.
	Dir  string
	Disk disk.Disk
	// Files are in the store, so that all servers serve the same.
	Files store.Collection[fleet.TrustFile]
	// Settings record that the installation has an online key.
	Settings store.Settings
	// Audit is the trail that records who published.
	Audit  store.Audit
	Events *event.Stream
	Log    *slog.Logger
	Now    clock.Clock
}

// Service serves the metadata. Use Open to create one.
type Service struct {
	dir      string
	disk     disk.Disk
	files    store.Collection[fleet.TrustFile]
	settings store.Settings
	audit    store.Audit
	events   *event.Stream
	log      *slog.Logger
	now      clock.Clock

	keys tuf.Online // the key for new roots comes first
	// keyless is the remedy if this server has no key, empty if it has one.
	keyless string
	wake    chan struct{}

	mu sync.Mutex
	// read caches the files in effect, by digest.
	read map[string][]byte
	// problem is why the last round could not sign.
	problem string
	// rooted is whether there was a root when the files were last read.
	rooted bool
	// warned is when the expiry of each role was last logged.
	warned map[tuf.Role]time.Time
}

// Open reads the online keys in Dir, and generates the first key of the installation. A
// server without a key, where the installation has one, serves and reports the problem.
func Open(ctx context.Context, c Config) (*Service, error) {
	s := &Service{
		dir: c.Dir, disk: c.Disk, files: c.Files, settings: c.Settings, audit: c.Audit, events: c.Events, log: c.Log, now: c.Now,
		wake: make(chan struct{}, 1), read: map[string][]byte{}, warned: map[tuf.Role]time.Time{},
	}
	return s, s.openKeys(ctx)
}

// View is the state of the repository.
type View struct {
	tuf.Repository
	// Online are the server's public keys; the key for new roots comes first.
	Online []tuf.PublicKey
	// Problem is why this server cannot sign, empty while it can.
	Problem string
	// Warnings say which offline roles expire soon and who must sign.
	Warnings []string
}

// View returns the state of the repository.
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
		if w := warning(e, s.now.UTC()); w != "" {
			v.Warnings = append(v.Warnings, w)
		}
	}
	return v, err
}

// Problem returns why this server cannot sign, empty if it can.
func (s *Service) Problem() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.problem == "" && s.rooted {
		return s.keyless
	}
	return s.problem
}

// publishTries bounds the attempts of an upload that conflicts with writes of other
// servers, which happen every few hours.
const publishTries = 4

// Publish accepts roots and targets that publishers signed, all or none.
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
	now := s.now.UTC()
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
	if err := s.record(ctx, changed, actor, now); err != nil {
		return err
	}
	if err := s.save(ctx, state, next); err != nil {
		return err
	}
	s.announce(ctx, changed, actor)
	select { // Run computes when to sign next
	case s.wake <- struct{}{}:
	default:
	}
	return nil
}

// record writes the audit entries of files that publishers changed.
func (s *Service) record(ctx context.Context, changed []tuf.File, actor string, now time.Time) error {
	for _, f := range changed {
		info, err := tuf.Inspect(f.Data)
		if err != nil || !info.Role.Offline() {
			continue
		}
		err = audit.Record(ctx, s.audit, now, fleet.AuditEntry{
			Actor: actor, Verb: "trust.publish", Subject: f.Name, Text: "published the signed metadata " + f.Name,
			Data: event.Data(map[string]any{"version": info.Version, "digest": tuf.Digest(f.Data)}),
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// announce publishes events for files that publishers changed. Files that the server
// signs are not announced.
func (s *Service) announce(ctx context.Context, changed []tuf.File, actor string) {
	for _, f := range changed {
		info, err := tuf.Inspect(f.Data)
		if err != nil || !info.Role.Offline() {
			continue
		}
		s.log.Info("signed metadata published", "file", f.Name, "by", actor, "expires", info.Expires)
		s.events.Publish(ctx, fleet.Event{Type: fleet.EventTrustPublished, Subject: f.Name, Actor: actor, Data: event.Data(map[string]any{
			"version": info.Version, "expires": info.Expires, "digest": tuf.Digest(f.Data),
		})})
	}
}

// refused converts an error about an upload to an API error.
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
