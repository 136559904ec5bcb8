package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// population returns a fleet in which every field that lists sort or filter by has both
// equal and different values.
func population() []fleet.Agent {
	versions := []string{"1.9.0", "1.10.0", "1.10.0-rc.2", "1.10.0-rc.10", "1.10.0-SNAPSHOT", "", "2.0.0"}
	hosts := []string{"web-1", "web-10", "web-2", "Db", "äpfel"}
	policies := []string{"default", "canary", "edge"}
	var list []fleet.Agent
	for i := range 60 {
		// The order of the ids is not that of any field.
		a := agent(fmt.Sprintf("agent-%02d", i*37%60))
		a.EnrolledAt = at(time.Duration(i%7) * time.Minute)
		a.PolicyID = policies[i%len(policies)]
		a.Version = versions[i%len(versions)]
		a.LocalMetadata = fmt.Appendf(nil, `{"host":{"hostname":%q}}`, hosts[i%len(hosts)])
		if i%4 != 0 {
			a.Last = fleet.LastSeen{At: atPtr(time.Duration(i%6) * time.Hour), Status: []string{"online", "error", "degraded"}[i%3]}
		}
		if i%9 == 0 {
			a.Active = false
		}
		if i%10 == 3 {
			a.BeginUpgrade("act", "2.0.0", at(time.Duration(-i)*time.Minute))
		}
		if i%11 == 0 {
			a.UnenrollmentStartedAt = atPtr(time.Minute)
		}
		if i%13 == 0 {
			a.AuditUnenrolledReason = "orphaned"
		}
		list = append(list, a)
	}
	return list
}

// less compares agents for each sort.
var less = map[store.AgentSort]func(a, b fleet.Agent) int{
	store.ByEnrolledAt: func(a, b fleet.Agent) int { return a.EnrolledAt.Compare(b.EnrolledAt) },
	store.ByLastCheckin: func(a, b fleet.Agent) int {
		var x, y time.Time
		if a.Last.At != nil {
			x = *a.Last.At
		}
		if b.Last.At != nil {
			y = *b.Last.At
		}
		return x.Compare(y)
	},
	store.ByHostname: func(a, b fleet.Agent) int { return strings.Compare(a.Hostname(), b.Hostname()) },
	store.ByVersion:  func(a, b fleet.Agent) int { return compareVersions(a.Version, b.Version) },
	store.ByPolicy:   func(a, b fleet.Agent) int { return strings.Compare(a.PolicyID, b.PolicyID) },
	// Columns of the tables, and fields of the documents.
	"last_checkin_status":                  func(a, b fleet.Agent) int { return strings.Compare(a.Last.Status, b.Last.Status) },
	"audit_unenrolled_reason":              func(a, b fleet.Agent) int { return strings.Compare(a.AuditUnenrolledReason, b.AuditUnenrolledReason) },
	"upgrade_status":                       func(a, b fleet.Agent) int { return strings.Compare(string(a.UpgradeStatus), string(b.UpgradeStatus)) },
	"local_metadata.host.hostname.keyword": func(a, b fleet.Agent) int { return strings.Compare(a.Hostname(), b.Hostname()) },
	"upgrade_started_at":                   func(a, b fleet.Agent) int { return compareTimes(a.UpgradeStartedAt, b.UpgradeStartedAt) },
	"unenrollment_started_at":              func(a, b fleet.Agent) int { return compareTimes(a.UnenrollmentStartedAt, b.UnenrollmentStartedAt) },
}

// compareTimes sorts nil first.
func compareTimes(a, b *time.Time) int {
	var x, y time.Time
	if a != nil {
		x = *a
	}
	if b != nil {
		y = *b
	}
	return x.Compare(y)
}

// compareVersions sorts invalid versions first.
func compareVersions(a, b string) int {
	return strings.Compare(fleet.VersionKey(a), fleet.VersionKey(b))
}

// selectAgents returns the agents that match a filter without a query.
func selectAgents(list []fleet.Agent, f store.AgentFilter) []fleet.Agent {
	var out []fleet.Agent
	for _, a := range list {
		since, limited := f.SeenSince[a.PolicyID]
		if (f.PolicyID == "" || a.PolicyID == f.PolicyID) &&
			(!f.ActiveOnly || a.Active) &&
			(!limited || !a.LastActivity().Before(since)) &&
			(f.VersionBelow == "" || (a.Version != "" && compareVersions(a.Version, f.VersionBelow) < 0)) {
			out = append(out, a)
		}
	}
	return out
}

var filters = map[string]store.AgentFilter{
	"all":                {},
	"of a policy":        {PolicyID: "canary"},
	"of no policy":       {PolicyID: "nothing"},
	"active":             {ActiveOnly: true},
	"seen lately":        {SeenSince: map[string]time.Time{"default": at(2 * time.Hour), "edge": at(4 * time.Hour)}},
	"below a version":    {VersionBelow: "1.10.0"},
	"below a prerelease": {VersionBelow: "1.10.0-rc.10"},
	"all combined":       {PolicyID: "edge", ActiveOnly: true, SeenSince: map[string]time.Time{"edge": at(time.Hour)}, VersionBelow: "2.0.0"},
	"timeout of another": {SeenSince: map[string]time.Time{"nothing": at(9 * time.Hour)}},
}

func testAgentLists(t *testing.T, cfg Config) {
	ctx := t.Context()
	s := cfg.open(t)
	fleetOf := population()
	for _, a := range fleetOf {
		must(t, s.Agents().Create(ctx, a))
	}
	cfg.eventually(t, func() error { // so that any subset of the tests below finds all agents
		_, total, err := s.Agents().List(ctx, store.AgentQuery{})
		if err != nil || total != len(fleetOf) {
			return fmt.Errorf("%d agents, want %d: %w", total, len(fleetOf), err)
		}
		return nil
	})

	// listed returns the whole list, read page by page.
	listed := func(q store.AgentQuery) ([]fleet.Agent, error) {
		var out []fleet.Agent
		for {
			page, total, err := s.Agents().List(ctx, q)
			if err != nil {
				return nil, err
			}
			if len(page) > q.Limit {
				return nil, fmt.Errorf("a page has %d agents, limit is %d", len(page), q.Limit)
			}
			out = append(out, page...)
			if q.Offset += q.Limit; q.Offset >= total+q.Limit {
				if len(out) != total {
					return nil, fmt.Errorf("pages have %d agents, the total is %d", len(out), total)
				}
				return out, nil
			}
		}
	}

	for by, cmp := range less {
		for _, desc := range []bool{false, true} {
			t.Run(fmt.Sprintf("pages sorted by %s, descending %v, have every agent once", by, desc), func(t *testing.T) {
				want := slices.Clone(fleetOf)
				slices.SortFunc(want, func(a, b fleet.Agent) int {
					n := cmp(a, b)
					if n == 0 {
						n = strings.Compare(a.ID, b.ID)
					}
					if desc {
						n = -n
					}
					return n
				})
				cfg.eventually(t, func() error {
					got, err := listed(store.AgentQuery{Sort: by, Desc: desc, Limit: 7})
					if err != nil {
						return err
					}
					return differs(ids(got), ids(want))
				})
			})
		}
	}

	for by := range less {
		for _, desc := range []bool{false, true} {
			t.Run(fmt.Sprintf("pages after a position, sorted by %s, descending %v, are those of the whole list", by, desc), func(t *testing.T) {
				q := store.AgentQuery{AgentFilter: store.AgentFilter{ActiveOnly: true}, Sort: by, Desc: desc, Limit: 100}
				cfg.eventually(t, func() error {
					want, total, err := s.Agents().List(ctx, q)
					if err != nil {
						return err
					}
					got := want[:1:1]
					for q := q; ; {
						at := q.Sort.Position(&got[len(got)-1])
						// As a client sends it back.
						text, err := at.MarshalJSON()
						if err != nil {
							return err
						}
						at, ok := q.Sort.ParsePosition(text)
						if !ok {
							return fmt.Errorf("the position %s cannot be read", text)
						}
						q.After, q.Limit = &at, 7
						page, n, err := s.Agents().List(ctx, q)
						if err != nil || n != total {
							return fmt.Errorf("%d agents, want %d: %w", n, total, err)
						}
						if len(page) == 0 {
							return differs(ids(got), ids(want))
						}
						if got = append(got, page...); len(got) > len(want) {
							return differs(ids(got), ids(want))
						}
					}
				})
			})
		}
	}

	for name, filter := range filters {
		t.Run("List and Facts return the same agents, "+name, func(t *testing.T) {
			want := selectAgents(fleetOf, filter)
			slices.SortFunc(want, func(a, b fleet.Agent) int { return strings.Compare(a.ID, b.ID) })
			cfg.eventually(t, func() error {
				got, err := listed(store.AgentQuery{AgentFilter: filter, Limit: 100})
				if err != nil {
					return err
				}
				slices.SortFunc(got, func(a, b fleet.Agent) int { return strings.Compare(a.ID, b.ID) })
				return differs(ids(got), ids(want))
			})
			wantFacts := map[string]fleet.StatusFacts{}
			for _, a := range want {
				stored := value(s.Agents().Get(ctx, a.ID))(t)
				wantFacts[a.ID] = stored.Facts()
			}
			cfg.eventually(t, func() error {
				got := map[string]fleet.StatusFacts{}
				if err := s.Agents().Facts(ctx, filter, func(id string, f fleet.StatusFacts) { got[id] = f }); err != nil {
					return err
				}
				return differs(got, wantFacts)
			})
			cfg.eventually(t, func() error {
				got := []fleet.Agent{}
				if err := s.Agents().Each(ctx, filter, func(a fleet.Agent) { got = append(got, a) }); err != nil {
					return err
				}
				slices.SortFunc(got, func(a, b fleet.Agent) int { return strings.Compare(a.ID, b.ID) })
				if err := differs(ids(got), ids(want)); err != nil {
					return err
				}
				for _, a := range got {
					alone := value(s.Agents().Get(ctx, a.ID))(t)
					if err := errors.Join(differs(a, alone), differs(a.Last, alone.Last), differs(a.Revision, alone.Revision)); err != nil {
						return fmt.Errorf("agent %s: %w", a.ID, err)
					}
				}
				return nil
			})
		})
	}

	t.Run("the default sort is by enrolment, and without a limit only the total is returned", func(t *testing.T) {
		want, _, err := s.Agents().List(ctx, store.AgentQuery{Sort: store.ByEnrolledAt, Limit: 10})
		must(t, err)
		got, total, err := s.Agents().List(ctx, store.AgentQuery{Limit: 10})
		must(t, err)
		equal(t, ids(got), ids(want))
		none, again, err := s.Agents().List(ctx, store.AgentQuery{})
		must(t, err)
		if len(none) != 0 || total != len(fleetOf) || again != total {
			t.Fatalf("%d agents, totals %d and %d, want 0 and %d", len(none), total, again, len(fleetOf))
		}
	})

	t.Run("List returns complete agents", func(t *testing.T) {
		page, _, err := s.Agents().List(ctx, store.AgentQuery{Limit: 5, Sort: store.ByLastCheckin, Desc: true})
		must(t, err)
		for _, got := range page {
			want := value(s.Agents().Get(ctx, got.ID))(t)
			sameAgent(t, got, want)
			if got.Revision != want.Revision {
				t.Fatalf("List returns revision %d, Get returns %d", got.Revision, want.Revision)
			}
		}
	})

	t.Run("Upgrading returns the agents that began first", func(t *testing.T) {
		var want []fleet.Agent
		for _, a := range fleetOf {
			if a.Upgrading() {
				want = append(want, a)
			}
		}
		slices.SortFunc(want, func(a, b fleet.Agent) int { return a.UpgradeStartedAt.Compare(*b.UpgradeStartedAt) })
		for _, limit := range []int{len(want), 2, 100} {
			cfg.eventually(t, func() error {
				got, err := s.Agents().Upgrading(ctx, store.UpgradingSince{}, limit)
				if err != nil {
					return err
				}
				return differs(ids(got), ids(want[:min(limit, len(want))]))
			})
		}
		// Pages of one agent, each from the cursor of the last, return all agents once.
		var (
			paged []fleet.Agent
			after store.UpgradingSince
		)
		for range len(want) + 1 {
			got, err := s.Agents().Upgrading(ctx, after, 1)
			if err != nil {
				t.Fatal(err)
			}
			if len(got) == 0 {
				break
			}
			paged = append(paged, got...)
			after = store.UpgradingSince{At: *got[0].UpgradeStartedAt, ID: got[0].ID}
		}
		if err := differs(ids(paged), ids(want)); err != nil {
			t.Error(err)
		}
	})

	t.Run("Leavers returns the agents that have left and whose orders were not ended", func(t *testing.T) {
		s := cfg.open(t)
		// By id: what is done to the agent, and whether its ends are then pending.
		cases := []struct {
			id      string
			change  func(*fleet.Agent)
			pending bool
		}{
			{"a-stays", func(*fleet.Agent) {}, false},
			{"b-revoked", func(a *fleet.Agent) { a.Active = false }, true},
			{"c-uninstalled", func(a *fleet.Agent) { a.AuditUnenrolledReason = "uninstall" }, true},
			{"d-orphaned", func(a *fleet.Agent) { a.AuditUnenrolledReason = "orphaned" }, true},
			{"e-key-revoked", func(a *fleet.Agent) { a.AuditUnenrolledReason = "key_revoked" }, false},
			{"f-ended", func(a *fleet.Agent) { a.Active, a.OrdersEndedAt = false, atPtr(time.Hour) }, false},
			{"g-uninstalled", func(a *fleet.Agent) { a.AuditUnenrolledReason = "uninstall" }, true},
		}
		var want []string
		for _, c := range cases {
			must(t, s.Agents().Create(ctx, agent(c.id)))
			a := value(s.Agents().Get(ctx, c.id))(t)
			c.change(&a)
			value(s.Agents().Update(ctx, a))(t)
			if c.pending {
				want = append(want, c.id)
			}
		}
		leavers := func(after string, limit int) []string {
			got, err := s.Agents().Leavers(ctx, after, limit)
			must(t, err)
			return ids(got)
		}
		cfg.eventually(t, func() error { return differs(leavers("", 9), want) })
		equal(t, leavers("", 2), want[:2])
		equal(t, leavers(want[1], 9), want[2:])
		equal(t, len(leavers("", 0)), 0)
		var seen []string
		must(t, s.Agents().Census(ctx, func(c fleet.Census) { seen = append(seen, c.ID) }))
		slices.Sort(seen)
		equal(t, seen, []string{"a-stays", "e-key-revoked"})

		// One that returns has not left, and may leave again.
		for _, ended := range []bool{true, false} {
			a := value(s.Agents().Get(ctx, "g-uninstalled"))(t)
			if a.AuditUnenrolledReason = "uninstall"; ended {
				a.OrdersEndedAt = atPtr(time.Hour)
			} else {
				a.Return()
				a.AuditUnenrolledReason = "uninstall"
			}
			value(s.Agents().Update(ctx, a))(t)
			left := want[:3]
			if !ended {
				left = want
			}
			cfg.eventually(t, func() error { return differs(leavers("", 9), left) })
		}
	})

	t.Run("lists reflect updates, touches and deletions", func(t *testing.T) {
		s := cfg.open(t)
		for _, id := range []string{"a", "b", "c"} {
			must(t, s.Agents().Create(ctx, agent(id)))
		}
		a := value(s.Agents().Get(ctx, "a"))(t)
		a.Version, a.PolicyID, a.Active = "3.0.0", "edge", false
		a.LocalMetadata = []byte(`{"host":{"hostname":"zz"}}`)
		a.BeginUpgrade("act", "4.0.0", base)
		value(s.Agents().Update(ctx, a))(t)
		must(t, s.Agents().Touch(ctx, []fleet.Touch{{AgentID: "b", At: at(time.Hour), Status: "online"}}))
		must(t, s.Agents().Delete(ctx, "c"))
		wants := map[string]struct {
			query store.AgentQuery
			want  []string
		}{
			"last of all by version":  {store.AgentQuery{Sort: store.ByVersion, Limit: 9}, []string{"b", "a"}},
			"last of all by hostname": {store.AgentQuery{Sort: store.ByHostname, Limit: 9}, []string{"b", "a"}},
			"first, never seen":       {store.AgentQuery{Sort: store.ByLastCheckin, Limit: 9}, []string{"a", "b"}},
			"in its new policy":       {store.AgentQuery{AgentFilter: store.AgentFilter{PolicyID: "edge"}, Limit: 9}, []string{"a"}},
			"no longer active":        {store.AgentQuery{AgentFilter: store.AgentFilter{ActiveOnly: true}, Limit: 9}, []string{"b"}},
		}
		for name, w := range wants {
			cfg.eventually(t, func() error {
				got, _, err := s.Agents().List(ctx, w.query)
				if err == nil {
					err = differs(ids(got), w.want)
				}
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				return nil
			})
		}
		upgrading := func(want ...string) func() error {
			return func() error {
				got, err := s.Agents().Upgrading(ctx, store.UpgradingSince{}, 9)
				if err != nil {
					return err
				}
				return differs(ids(got), append([]string{}, want...))
			}
		}
		cfg.eventually(t, upgrading("a"))
		a = value(s.Agents().Get(ctx, "a"))(t)
		a.ObserveUpgrade("4.0.0", nil, base)
		value(s.Agents().Update(ctx, a))(t)
		cfg.eventually(t, upgrading())
	})
}
