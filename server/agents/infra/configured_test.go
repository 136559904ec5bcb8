package infra_test

import (
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/agents/infra"
	"github.com/muster-fleet/muster/server/agents/policy"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/store/sqlite/sqlitetest"
)

// starts are the starts of servers on one store.
type starts struct {
	t     *testing.T
	store store.Store
}

func newStarts(t *testing.T, policies ...fleet.Policy) *starts {
	t.Helper()
	s := &starts{t, sqlitetest.Open(t, filepath.Join(t.TempDir(), "muster.db"))}
	for _, p := range policies {
		p.Name, p.Namespace, p.PolicyRev = p.ID, "default", 1
		if err := s.store.Policies().Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// start starts the server with a name, and wants the policy to have a revision then.
func (s *starts) start(name string, server infra.Server, policyID string, want int64) {
	s.t.Helper()
	objects := infra.Objects{Store: s.store, Server: server}
	policies := &policy.Service{Store: s.store, Objects: objects, Events: &event.Stream{Store: s.store.Events(), Log: slog.New(slog.DiscardHandler)}}
	if err := (&infra.Service{Objects: objects, Policies: policies}).NoticeConfiguration(s.t.Context(), name); err != nil {
		s.t.Fatal(err)
	}
	p, err := s.store.Policies().Get(s.t.Context(), policyID)
	if err != nil {
		s.t.Fatal(err)
	}
	if p.PolicyRev != want {
		s.t.Errorf("after the start of %s with %s the policy %s has revision %d, want %d", name, server.AgentsURL, policyID, p.PolicyRev, want)
	}
}

func at(url string) infra.Server { return infra.Server{AgentsURL: url, CA: "one"} }

func TestChangedConfigurationGivesPoliciesOneNewRevision(t *testing.T) {
	s := newStarts(t, fleet.Policy{ID: "web"})
	guessed := infra.Server{AgentsURL: "https://web-7f3:8220", Guessed: true, CA: "one"}
	s.start("a", guessed, "web", 1)
	s.start("a", infra.Server{AgentsURL: "https://web-8e1:8220", Guessed: true, CA: "two"}, "web", 1)
	s.start("a", at("https://old"), "web", 2)
	s.start("a", at("https://old"), "web", 2)
	s.start("a", at("https://new"), "web", 3)
	s.start("a", at("https://new"), "web", 3)
	s.start("a", infra.Server{AgentsURL: "https://new", CA: "two"}, "web", 4)
	s.start("a", at("https://old"), "web", 5)
	s.start("a", guessed, "web", 5) // agents stay where they are
	s.start("a", at("https://old"), "web", 6)
}

func TestServersWithAddressesOfTheirOwnRestartWithoutNewRevisions(t *testing.T) {
	s := newStarts(t, fleet.Policy{ID: "web"})
	s.start("a", at("https://a"), "web", 1)
	s.start("b", at("https://b"), "web", 2)
	for range 3 {
		s.start("a", at("https://a"), "web", 2)
		s.start("b", at("https://b"), "web", 2)
	}
}

// Until it restarts, a server sends the old address, also in the new revision.
func TestEachServerThatGetsTheNewAddressGivesANewRevision(t *testing.T) {
	s := newStarts(t, fleet.Policy{ID: "web"})
	for _, name := range []string{"a", "b", "c"} {
		s.start(name, at("https://old"), "web", 1)
	}
	s.start("a", at("https://new"), "web", 2)
	s.start("c", at("https://old"), "web", 2)
	s.start("b", at("https://new"), "web", 3)
	s.start("c", at("https://new"), "web", 4)
	for _, name := range []string{"a", "b", "c"} {
		s.start(name, at("https://new"), "web", 4)
	}
}

func TestServersUnderNewNamesCompareWithTheNewest(t *testing.T) {
	s := newStarts(t, fleet.Policy{ID: "web"})
	for i := range 250 { // more than are remembered
		s.start(string(rune('A'+i)), at("https://old"), "web", 1)
	}
	s.start("pod-1", at("https://new"), "web", 2)
	s.start("pod-2", at("https://new"), "web", 2)
	s.start("pod-3", at("https://old"), "web", 3)
	raw, err := s.store.Settings().Get(t.Context(), "policy-servers")
	if err != nil || len(raw) > 15_000 {
		t.Errorf("the setting has %d bytes, %v", len(raw), err)
	}
}

func TestPoliciesThatDoNotUseTheServerKeepTheirRevision(t *testing.T) {
	s := newStarts(t,
		fleet.Policy{ID: "elsewhere", FleetServerHostID: "balancer", DownloadSourceID: "mirror"},
		fleet.Policy{ID: "mirrored", DownloadSourceID: "mirror"},
		fleet.Policy{ID: "balanced", FleetServerHostID: "balancer"},
	)
	if err := s.store.FleetServerHosts().Create(t.Context(), fleet.FleetServerHost{ID: "balancer", Name: "b", HostURLs: []string{"https://lb"}}); err != nil {
		t.Fatal(err)
	}
	if err := s.store.DownloadSources().Create(t.Context(), fleet.DownloadSource{ID: "mirror", Name: "m", Host: "https://mirror/"}); err != nil {
		t.Fatal(err)
	}
	s.start("a", at("https://old"), "elsewhere", 1)
	s.start("a", at("https://new"), "elsewhere", 1)
	s.start("a", at("https://new"), "mirrored", 2)
	s.start("a", at("https://new"), "balanced", 2)
	entries, _, err := s.store.Audit().List(t.Context(), store.AuditQuery{Limit: 9})
	if err != nil || len(entries) != 1 || entries[0].Actor != "muster" || entries[0].At.Before(time.Now().Add(-time.Hour)) {
		t.Errorf("the audit trail has %+v, %v", entries, err)
	}
}
