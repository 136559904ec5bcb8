package policy_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/agents/infra"
	"github.com/muster-fleet/muster/server/agents/policy"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store/event"
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
	if _, err := s.Store.Policies().Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if err := s.EnsureDefault(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p, err := s.Store.Policies().Get(t.Context(), fleet.DefaultPolicyID); err != nil || p.Name != "Renamed" {
		t.Errorf("after the second start the policies are %+v, %v", p, err)
	}
}

// defaultKeys records the policies for which a default key was made.
type defaultKeys struct {
	policy.Keys
	of []string
}

func (k *defaultKeys) CreateDefaultKey(_ context.Context, policyID, actor string) error {
	k.of = append(k.of, policyID+" by "+actor)
	return nil
}

func TestDefaultKeyComesWithEachPolicyThatIsCreated(t *testing.T) {
	s := newService(t)
	keys := &defaultKeys{}
	s.Keys = keys
	if _, err := s.Create(t.Context(), fleet.Policy{ID: "web", Name: "Web", Namespace: "default"}, "ann"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), fleet.Policy{ID: "web", Name: "Other", Namespace: "default"}, "ann"); err == nil {
		t.Fatal("the same id was created twice")
	}
	copied, err := s.Copy(t.Context(), "web", "Copy", nil, "bob")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"web by ann", copied.ID + " by bob"}; !slices.Equal(keys.of, want) {
		t.Errorf("keys were made for %q, want %q", keys.of, want)
	}
}

// Such a version would upgrade no agent, and nobody would notice a misspelt one.
func TestRequiredVersionsMustBePublished(t *testing.T) {
	s := newService(t)
	requires := func(versions ...string) (list []fleet.RequiredVersion) {
		for _, v := range versions {
			list = append(list, fleet.RequiredVersion{Version: v, Percentage: 10})
		}
		return list
	}
	create := func(name string, versions ...string) (fleet.Policy, error) {
		return s.Create(t.Context(), fleet.Policy{Name: name, Namespace: "default", RequiredVersions: requires(versions...)}, "ann")
	}
	refused := func(err error, says string) {
		t.Helper()
		if fleet.KindOf(err) != fleet.Invalid || !strings.Contains(fmt.Sprint(err), says) {
			t.Errorf("the error is %v, want one that says %q", err, says)
		}
	}
	_, err := create("web", "2.5.0")
	refused(err, "[request body.required_versions[0].version]: is 2.5.0, and no package of that version is published, so no agent would be upgraded to it (none is published yet)")
	for _, p := range []fleet.Package{{Version: "2.3.0"}, {Version: "2.4.0"}, {Version: "2.4.1"}, {Version: "2.10.0"}, {Version: "3.0.0"}, {Version: "2.5.0", Component: "proxy"}} {
		p.File = p.Component + p.Version
		if err := s.Store.Packages().Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	_, err = create("web", "2.4.1", "2.5.0")
	refused(err, "required_versions[1].version]: is 2.5.0, and no package of that version is published, so no agent would be upgraded to it (the nearest that are published are 3.0.0, 2.10.0, 2.4.1, 2.4.0)")
	_, err = create("web", "30.0.0")
	refused(err, "(the nearest that are published are 3.0.0, 2.10.0)")
	web, err := create("web", "2.4.1")
	if err != nil {
		t.Fatal(err)
	}

	// An edit of another field does not fail because the package was removed.
	if err := s.Store.Packages().Delete(t.Context(), "2.4.1"); err != nil {
		t.Fatal(err)
	}
	change := func(edit func(*fleet.Policy)) error {
		_, err := s.Update(t.Context(), web.ID, policy.Change{Edit: func(p *fleet.Policy) ([]string, error) { edit(p); return []string{"x"}, nil }}, "ann")
		return err
	}
	if err := change(func(p *fleet.Policy) { p.Description, p.RequiredVersions = "the web", requires("2.4.1", "2.4.0") }); err != nil {
		t.Error(err)
	}
	refused(change(func(p *fleet.Policy) { p.RequiredVersions = requires("2.4.2") }), "required_versions[0].version]: is 2.4.2")
}
