package policy_test

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/event"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/infra"
	"github.com/muster-fleet/muster/server/policy"
	"github.com/muster-fleet/muster/server/store/sqlite/sqlitetest"
)

func newService(t *testing.T) *policy.Service {
	t.Helper()
	s := sqlitetest.Open(t, filepath.Join(t.TempDir(), "muster.db"))
	return &policy.Service{Store: s, Objects: infra.Objects{Store: s}, Events: &event.Stream{Store: s.Events(), Log: slog.New(slog.DiscardHandler)}}
}

func TestCreatePolicy(t *testing.T) {
	s := newService(t)
	web, err := s.Create(t.Context(), fleet.Policy{Name: " Web ", Namespace: "default", InactivityTimeout: time.Hour}, "ann")
	if err != nil || web.ID == "" || web.Name != "Web" || web.PolicyRev != 1 || web.UpdatedBy != "ann" || web.UpdatedAt.IsZero() {
		t.Fatalf("policy is %+v, %v", web, err)
	}
	if _, err := s.Create(t.Context(), fleet.Policy{ID: "db", Name: "DB", Namespace: "default"}, "ann"); err != nil {
		t.Fatal(err)
	}
	timeouts, err := s.Timeouts(t.Context())
	if err != nil || len(timeouts) != 2 || timeouts[web.ID] != time.Hour || timeouts["db"] != 0 {
		t.Errorf("timeouts are %v, %v", timeouts, err)
	}
}

func TestCreateErrorNamesField(t *testing.T) {
	s := newService(t)
	if _, err := s.Create(t.Context(), fleet.Policy{ID: "db", Name: "DB", Namespace: "default"}, "ann"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		p    fleet.Policy
		kind fleet.Kind
		says string
	}{
		{fleet.Policy{Name: " ", Namespace: "default"}, fleet.Invalid, "body.name"},
		{fleet.Policy{Name: "x"}, fleet.Invalid, "body.namespace"},
		{fleet.Policy{Name: "x", Namespace: "default", InactivityTimeout: -1}, fleet.Invalid, "body.inactivity_timeout"},
		{fleet.Policy{Name: "x", Namespace: "default", ID: "../x"}, fleet.Invalid, "body.id"},
		{fleet.Policy{Name: "DB", Namespace: "default"}, fleet.Conflict, "Agent Policy 'db' already exists with name 'DB'"},
		{fleet.Policy{Name: "x", Namespace: "default", ID: "db"}, fleet.Conflict, "db"},
	} {
		_, err := s.Create(t.Context(), c.p, "ann")
		if err == nil || fleet.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: error is %v, want %s that says %q", c.p, err, c.kind, c.says)
		}
	}
}

func TestEnsureDefaultCreatesPolicyOnce(t *testing.T) {
	s := newService(t)
	if err := s.EnsureDefault(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, err := s.Store.Policies().Get(t.Context(), fleet.DefaultPolicyID)
	if err != nil || p.InactivityTimeout != fleet.DefaultInactivityTimeout {
		t.Fatalf("policy is %+v, %v", p, err)
	}
	p.Name = "Renamed"
	if err := s.Store.Policies().Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if err := s.EnsureDefault(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p, err := s.Store.Policies().Get(t.Context(), fleet.DefaultPolicyID); err != nil || p.Name != "Renamed" {
		t.Errorf("after the second start the policies are %+v, %v", p, err)
	}
}
