//go:build linux

package bench

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
)

// euOnline is a typical query: one agent in three has the tag, and most are online.
const euOnline = "status: online and tags: eu"

// statusPath counts all agents by status.
const statusPath = "/api/fleet/agent_status"

// largeFleet has the expected counts.
type largeFleet struct{ agents, euOnline int }

const (
	// loaders is how many agents are written concurrently, so that a store can commit them
	// together.
	loaders = 256
	// loadBatch is how many agents one call of a loader writes.
	loadBatch = 5_000
)

// loader is a store that writes many agents with one call.
type loader interface {
	LoadAgents(ctx context.Context, agents []fleet.Agent) (written int, err error)
}

// load writes a large fleet into the store as if it had enrolled.
func (s *site) load(at *server, n int) timing {
	s.Helper()
	// In the future, so that no agent goes offline during the measurement.
	now := time.Now().UTC().Add(time.Hour)
	s.fleet = &largeFleet{agents: n}
	all := make([]fleet.Agent, n)
	for i := range all {
		all[i] = fleetAgent(i, now)
		if all[i].Facts().StatusAt(now, 0) == fleet.StatusOnline && all[i].Tags[0] == "eu" {
			s.fleet.euOnline++
		}
	}
	began := time.Now()
	if l, ok := at.store.(loader); ok {
		for batch := range slices.Chunk(all, loadBatch) {
			_, err := l.LoadAgents(s.Context(), batch)
			s.check(err)
		}
	} else {
		s.together(n, loaders, func(i int) error { return at.store.Agents().Create(s.Context(), all[i]) })
	}
	return timing{took: time.Since(began), n: n}
}

// fleetAgent returns an agent of a fleet in which a few are offline, degraded or unenrolled.
// None is being upgraded, since a server would work on that during the measurement.
func fleetAgent(i int, now time.Time) fleet.Agent {
	id := fmt.Sprintf("fleet-%06d", i)
	a := fleet.Agent{
		ID: id, Type: "PERMANENT", Active: i%100 != 99, PolicyID: fleet.DefaultPolicyID,
		AccessKeyID: "key-" + id, AccessKeyHash: "5f2a9c1be0d94f7c5f2a9c1be0d94f7c5f2a9c1be0d94f7c5f2a9c1be0d94f7c",
		EnrolledAt: now.Add(-30 * 24 * time.Hour), Version: fmt.Sprintf("1.%d.0", i%7),
		Tags: []string{[]string{"eu", "us", "asia"}[i%3], fmt.Sprintf("site=s%d", i%50)},
		LocalMetadata: fmt.Appendf(nil, `{"elastic":{"agent":{"id":%q,"version":"1.%d.0","snapshot":false,"upgradeable":true,"log_level":"info"}},`+
			`"host":{"hostname":"host-%06d.example.internal","name":"host-%06d","architecture":"x86_64","id":"5f2a9c1be0d94f7c","ip":["10.0.0.%d/24","fe80::1/64"],"mac":["02:42:ac:11:00:02"]},`+
			`"os":{"family":"debian","kernel":"6.12.0-amd64","platform":"debian","version":"13 (trixie)","name":"Debian GNU/Linux","full":"Debian GNU/Linux trixie(13)","type":"linux"}}`, id, i%7, i, i, i%250),
		Components: []byte(`[{"id":"log-default","type":"log","status":"HEALTHY","message":"Healthy: communicating with pid '1234'","units":[{"id":"log-default","type":"output","status":"HEALTHY","message":"Healthy"}]}]`),
		Last:       fleet.LastSeen{At: &now, Status: "online", Message: "Running"},
	}
	switch i % 20 {
	case 3:
		a.Last.Status, a.Last.Message = "degraded", "one of four inputs does not run"
	case 7, 8:
		long := now.Add(-24 * time.Hour)
		a.Last.At = &long
	}
	return a
}

// queryBudget bounds the time of one query's repetitions; at least three are made.
const queryBudget = 20 * time.Second

// queries repeats one request to the admin API. The first is not measured, since it makes
// recent writes visible in a store.
func queries(path string) func(s *site, people, _ *server, n int) func() timing {
	return func(s *site, people, _ *server, n int) func() timing {
		s.checkCounts(people, path)
		return func() timing {
			var t timing
			began := time.Now()
			for i := 0; i < n && (i < 3 || time.Since(began) < queryBudget); i++ {
				asked := time.Now()
				var ignored struct{}
				s.check(s.ask(people, http.MethodGet, path, nil, &ignored))
				t.each = append(t.each, time.Since(asked))
			}
			return t
		}
	}
}

// checkCounts checks the result of a query.
func (s *site) checkCounts(people *server, path string) {
	s.Helper()
	if path == statusPath {
		var got adminapi.AgentStatusResponse
		s.check(s.ask(people, http.MethodGet, path, nil, &got))
		if want := s.fleet.agents + len(s.agents); got.Results.All < want {
			s.Fatalf("%s counts %d agents, want at least %d", path, got.Results.All, want)
		}
		return
	}
	var got adminapi.AgentList
	s.check(s.ask(people, http.MethodGet, path, nil, &got))
	if got.Total != s.fleet.euOnline {
		s.Fatalf("%s finds %d agents, want %d", path, got.Total, s.fleet.euOnline)
	}
}
