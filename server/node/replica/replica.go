// Package replica records in the store which servers of the installation run: each server
// describes itself every few seconds, and every server can list all of them. Nothing else
// depends on it: a server that cannot write its description serves all the same.
package replica

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/audit"
	"github.com/muster-fleet/muster/server/store/storehealth"
)

const (
	idFile = "server-id"
	opID   = "server id"

	// sharedAfter is how many times a process must find the name of another one under its
	// id, after it has written its own. A process that is ended with a successor beside it
	// writes at most twice while it drains.
	sharedAfter = 3
)

// validID is what fleet.NewID returns.
var validID = regexp.MustCompile(`^[a-z0-9]{26}$`)

// OpenID returns the id of the server with this data folder, and makes one at its first
// start, or if the file is damaged.
func OpenID(d disk.Disk, data string) (string, error) {
	path := filepath.Join(data, idFile)
	text, err := d.ReadFile(opID, path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if id := string(bytes.TrimSpace(text)); validID.MatchString(id) {
		return id, nil
	}
	id := fleet.NewID()
	return id, disk.WriteFile(d, opID, path, []byte(id+"\n"), 0o600)
}

// Self is what a server says of itself.
type Self struct {
	ID, Host, Version   string
	Schema              int
	AgentsURL, AdminURL string
}

// Config is what a Service works with. All fields but Now are required.
type Config struct {
	Servers store.Collection[fleet.Server]
	Audit   store.Audit
	Self    Self
	// Parked returns the number of agents that are parked here.
	Parked func() int
	// Closed returns the connections that agents have closed here. Nil: nobody asks, since no other
	// server shares the store.
	Closed func(now time.Time) []fleet.ClosedConnection
	Health *storehealth.Monitor
	Log    *slog.Logger
	Now    clock.Clock
}

// Service describes this server in the store, and lists all servers. Run does the first,
// and is the only one to use the fields below Config.
type Service struct {
	Config
	process string
	started time.Time
	written bool // this process has written its description

	closed atomic.Pointer[map[string]time.Time] // at any server, by agent; nil before the first beat

	strangers int       // how often another process was found under the id
	stranger  time.Time // and when last
	warned    bool      // of another server with the id
}

// New returns the service of a process; Run must follow.
func New(c Config) *Service {
	return &Service{Config: c, process: fleet.NewID(), started: c.Now.UTC()}
}

// Run describes this server at once and then every fleet.ServerBeat, until ctx ends.
func (s *Service) Run(ctx context.Context) {
	tick := time.NewTicker(fleet.ServerBeat)
	defer tick.Stop()
	for {
		if s.Health.Away() == nil {
			bounded, cancel := context.WithTimeout(ctx, fleet.ServerBeat)
			err := s.Beat(bounded)
			cancel()
			if err != nil && ctx.Err() == nil {
				s.Health.Failed(err)
				s.Log.Debug("this server is not up to date in the list of servers", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Beat writes the description once. It must not be called concurrently.
func (s *Service) Beat(ctx context.Context) error {
	now := s.Now.UTC()
	v := fleet.Server{
		ID: s.Self.ID, Process: s.process, Host: s.Self.Host, Version: s.Self.Version, Schema: s.Self.Schema, StartedAt: s.started, SeenAt: now,
		AgentsURL: s.Self.AgentsURL, AdminURL: s.Self.AdminURL, Parked: s.Parked(),
	}
	if s.Closed != nil {
		v.Closed = s.Closed(now)
	}
	// Another process may write it meanwhile, and an operator may remove it.
	v, _, err := store.Put(ctx, s.Servers, v.ID, func(stored *fleet.Server) (fleet.Server, error) {
		v.SharedWith = ""
		if stored != nil {
			v.SharedWith = s.sharedWith(stored, now)
		}
		return v, nil
	})
	if err != nil {
		return err
	}
	if v.SharedWith != "" && !s.warned {
		s.Log.Warn("another server has the id of this one", "what", v.Problem())
	}
	s.written, s.warned = true, v.SharedWith != ""
	if s.Closed == nil {
		return nil
	}
	list, err := s.List(ctx)
	if err != nil {
		return err
	}
	closed := map[string]time.Time{}
	for i := range list {
		for _, c := range list[i].Closed {
			if c.At.After(closed[c.AgentID]) {
				closed[c.AgentID] = c.At
			}
		}
	}
	s.closed.Store(&closed)
	return nil
}

// ClosedAt returns when an agent has last closed its connection to any of the servers; false if none
// has said so at the last beat. Whether the agent has come back since shows by when it was seen.
func (s *Service) ClosedAt(agentID string) (at time.Time, ok bool) {
	closed := s.closed.Load()
	if closed == nil {
		return time.Time{}, false
	}
	at, ok = (*closed)[agentID]
	return at, ok
}

// sharedWith returns the host of another running server with this server's id, by what that
// one has stored.
func (s *Service) sharedWith(stored *fleet.Server, now time.Time) string {
	if stored.Process != s.process && s.written { // before that, it is what this server's predecessor wrote
		s.strangers++
		s.stranger = now
	}
	switch {
	case s.strangers == 0 || now.Sub(s.stranger) >= fleet.ServerAway:
		s.strangers = 0
		return ""
	case stored.Process == s.process:
		return stored.SharedWith
	case s.strangers >= sharedAfter:
		return stored.Host
	}
	return ""
}

// List returns all servers, by their hosts.
func (s *Service) List(ctx context.Context) ([]fleet.Server, error) {
	list, _, err := s.Servers.List(ctx, 0, 0)
	slices.SortStableFunc(list, func(a, b fleet.Server) int {
		return cmp.Or(strings.Compare(a.Host, b.Host), strings.Compare(a.ID, b.ID))
	})
	return list, err
}

// Forget removes a server that is away.
func (s *Service) Forget(ctx context.Context, id, actor, why string) error {
	v, err := s.Servers.Get(ctx, id)
	if err != nil {
		if fleet.KindOf(err) == fleet.NotFound {
			return fleet.Errorf(fleet.NotFound, "there is no server %s: `muster servers list` shows those there are", id)
		}
		return err
	}
	now := s.Now.UTC()
	if !v.Away(now) {
		return fleet.Errorf(fleet.Conflict, "the server on %s (%s) runs, and would be listed again at once: stop it, and forget it %s later", v.Host, id, fleet.ServerAway)
	}
	entry := fleet.AuditEntry{Actor: actor, Verb: "server.forget", Subject: id, Why: why, Text: "forgot the server on " + v.Host}
	if err := audit.Record(ctx, s.Audit, now, entry); err != nil {
		return err
	}
	return s.Servers.Delete(ctx, id)
}

// Remarks returns what an operator should know about the servers, as sentences.
func Remarks(list []fleet.Server, now time.Time) []string {
	var out []string
	hosts := map[string][]string{} // by minor version
	for i := range list {
		v := &list[i]
		if v.Away(now) {
			continue
		}
		if problem := v.Problem(); problem != "" {
			out = append(out, problem)
		}
		minor := minorOf(v.Version)
		hosts[minor] = append(hosts[minor], v.Host)
	}
	if len(hosts) < 2 {
		return out
	}
	minors := slices.Collect(maps.Keys(hosts))
	manifest.SortVersions(minors)
	for i, minor := range minors {
		minors[i] = fmt.Sprintf("%s on %s", strings.TrimSuffix(minor, ".0"), named(hosts[minor]))
	}
	return append(out, "servers of several versions run: "+strings.Join(minors, "; ")+". Upgrade the older ones: they leave alone what only newer servers know")
}

// minorOf returns the version without its patch level, such as 1.4.0 for 1.4.2-rc.1; a text
// that is no version is returned unchanged.
func minorOf(version string) string {
	v, err := manifest.ParseVersion(version)
	if err != nil {
		return version
	}
	n := v.Segments()
	return fmt.Sprintf("%d.%d.0", n[0], n[1])
}

// hostsNamed is how many hosts a remark names.
const hostsNamed = 5

func named(hosts []string) string {
	slices.Sort(hosts)
	hosts = slices.Compact(hosts)
	if n := len(hosts) - hostsNamed; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(hosts[:hostsNamed], ", "), n)
	}
	return strings.Join(hosts, ", ")
}
