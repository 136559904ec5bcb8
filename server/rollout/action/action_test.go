package action_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/store/keyfile"
	"github.com/muster-fleet/muster/server/store/sqlite/sqlitetest"
	"github.com/muster-fleet/muster/server/store/storehealth"
)

// world is the service on a real store, at a time of its own.
type world struct {
	t       *testing.T
	dir     string // of the store and of the encryption key
	store   *faultyStore
	service *action.Service
	now     time.Time
}

func newWorld(t *testing.T, agents ...string) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), now: time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)}
	w.store = &faultyStore{Store: sqlitetest.Open(t, filepath.Join(w.dir, "muster.db"))}
	w.service = w.serve(w.store)
	for _, id := range agents {
		w.enrol(id, "1.0.0")
	}
	for _, v := range []string{"1.1.0", "1.2.0"} {
		w.must(w.store.Packages().Create(t.Context(), fleet.Package{File: "muster-agent-" + v + "-linux-amd64.tar.gz", Version: v, OS: "linux", Arch: "amd64"}))
	}
	return w
}

// previewed collects the verdicts of one of the EachVerdict methods.
func previewed[O, V any](ctx context.Context, each func(context.Context, O, func(V)) error, o O) ([]V, error) {
	var all []V
	err := each(ctx, o, func(v V) { all = append(all, v) })
	return all, err
}

func (w *world) serve(s store.Store) *action.Service {
	w.t.Helper()
	log := slog.New(slog.DiscardHandler)
	feed, err := action.NewFeed(w.t.Context(), s.Actions(), func(...string) {}, &storehealth.Monitor{}, log)
	w.must(err)
	sealer, err := keyfile.OpenSealer(w.t.Context(), keyfile.File{Disk: disk.OS{}, Dir: w.dir, Name: keyfile.EncryptionKey, Settings: s.Settings()}, log)
	w.must(err)
	return &action.Service{Store: s, Health: &storehealth.Monitor{}, Feed: feed, Sealer: sealer, Events: &event.Stream{Store: s.Events(), Log: log}, Log: log, Now: func() time.Time { return w.now }}
}

// locks implements action.Locks by a function.
type locks func(context.Context, []fleet.Agent) (map[string]string, error)

func (l locks) Locked(ctx context.Context, component string, agents []fleet.Agent) (map[string]string, error) {
	if component != "" {
		return nil, nil
	}
	return l(ctx, agents)
}

func (w *world) enrol(id, version string) {
	w.t.Helper()
	meta := fmt.Sprintf(`{"elastic":{"agent":{"version":%q,"upgradeable":true}},"host":{"hostname":"host-%s","architecture":"x86_64"},"os":{"type":"linux"}}`, version, id)
	w.must(w.store.Agents().Create(w.t.Context(), fleet.Agent{
		ID: id, Type: "PERMANENT", Active: true, PolicyID: "default", AccessKeyID: "key-" + id, AccessKeyHash: "hash", EnrolledAt: w.now,
		Version: version, LocalMetadata: json.RawMessage(meta), Tags: []string{},
	}))
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) wantKind(err error, kind fleet.Kind, text string) {
	w.t.Helper()
	if err == nil || fleet.KindOf(err) != kind || !strings.Contains(err.Error(), text) {
		w.t.Fatalf("error is %v (%s), want one of kind %s that says %q", err, fleet.KindOf(err), kind, text)
	}
}

func (w *world) agent(id string) fleet.Agent {
	w.t.Helper()
	a, err := w.store.Agents().Get(w.t.Context(), id)
	w.must(err)
	return a
}

func (w *world) upgrading(id string) bool {
	w.t.Helper()
	a := w.agent(id)
	return a.Upgrading()
}

func (w *world) change(id string, f func(*fleet.Agent)) {
	w.t.Helper()
	_, err := store.UpdateAgent(w.t.Context(), w.store.Agents(), id, func(a *fleet.Agent) bool { f(a); return true })
	w.must(err)
}

func (w *world) result(a fleet.Action, id string) *fleet.Result {
	w.t.Helper()
	r, err := w.store.Results().Get(w.t.Context(), a.ID, id)
	if fleet.KindOf(err) == fleet.NotFound {
		return nil
	}
	w.must(err)
	return &r
}

func order(version string, ids ...string) action.UpgradeOrder {
	return action.UpgradeOrder{UpgradeRequest: fleet.UpgradeRequest{Version: version}, AgentIDs: ids, Actor: "ann"}
}

func (w *world) upgrade(ids ...string) fleet.Action {
	w.t.Helper()
	a, err := w.service.Upgrade(w.t.Context(), order("1.1.0", ids...))
	w.must(err)
	return a
}

func (w *world) status(a fleet.Action) action.Status {
	w.t.Helper()
	list, err := w.service.List(w.t.Context(), store.ActionQuery{Limit: 100}, 100)
	w.must(err)
	i := slices.IndexFunc(list, func(s action.Status) bool { return s.ID == a.ID })
	if i < 0 {
		w.t.Fatalf("action %s is not listed", a.ID)
	}
	return list[i]
}

// eventTypes are the types on the stream after the first n.
func (w *world) eventTypes(n int) []string {
	w.t.Helper()
	list, err := w.store.Events().After(w.t.Context(), int64(n), 1_000)
	w.must(err)
	var types []string
	for _, e := range list {
		types = append(types, e.Type)
	}
	return types
}

// faultyStore lets a test act between two writes.
type faultyStore struct {
	store.Store
	getMany    func() error // before each
	updateMany func() error // before each
	report     func() error // in the middle of each
	create     func() error // of an action, before each
}

func (s *faultyStore) Agents() store.Agents   { return faultyAgents{s.Store.Agents(), s} }
func (s *faultyStore) Actions() store.Actions { return faultyActions{s.Store.Actions(), s} }

func call(f func() error) error {
	if f == nil {
		return nil
	}
	return f()
}

type faultyAgents struct {
	store.Agents
	s *faultyStore
}

// Sorted keeps the pages of an order as the test made them.
func (a faultyAgents) Sorted(_ context.Context, ids []string) ([]string, error) { return ids, nil }

func (a faultyAgents) GetMany(ctx context.Context, ids []string) ([]fleet.Agent, error) {
	if err := call(a.s.getMany); err != nil {
		return nil, err
	}
	return a.Agents.GetMany(ctx, ids)
}

func (a faultyAgents) UpdateMany(ctx context.Context, agents []fleet.Agent) ([]error, error) {
	if err := call(a.s.updateMany); err != nil {
		return nil, err
	}
	return a.Agents.UpdateMany(ctx, agents)
}

func (a faultyAgents) Report(ctx context.Context, r store.Report) (int64, error) {
	if err := call(a.s.report); err != nil {
		// As a store without transactions: the results are there, the rest is not.
		_, perr := a.s.Store.Results().Put(ctx, r.Results)
		return 0, errors.Join(err, perr)
	}
	return a.Agents.Report(ctx, r)
}

type faultyActions struct {
	store.Actions
	s *faultyStore
}

func (a faultyActions) Create(ctx context.Context, act fleet.Action) (int64, error) {
	if err := call(a.s.create); err != nil {
		return 0, err
	}
	return a.Actions.Create(ctx, act)
}

var errAway = fleet.Errorf(fleet.Unavailable, "the store is away")

func away() error { return errAway }
