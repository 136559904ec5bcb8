//go:build unix

package sqlite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/processor"
)

// benchAgents is the size of the fleet that the performance goals are set for.
const benchAgents = 100_000

var (
	benchOnce  sync.Once
	benchPath  string
	benchStart = time.Date(2026, time.March, 3, 10, 0, 0, 0, time.UTC)
)

func TestMain(m *testing.M) {
	code := m.Run()
	if benchPath != "" {
		_ = os.RemoveAll(filepath.Dir(benchPath))
	}
	os.Exit(code)
}

func benchID(i int) string { return fmt.Sprintf("%08x-%016x", uint32(i)*2654435761, i) } //nolint:gosec // spread, not secret

func benchAgent(i int) fleet.Agent {
	a := fleet.Agent{
		ID: benchID(i), Type: "PERMANENT", Active: true, PolicyID: fmt.Sprintf("policy-%d", i%10), PolicyRev: 3,
		AccessKeyID: "k" + benchID(i), AccessKeyHash: "5f2a9c1be0d94f7c5f2a9c1be0d94f7c5f2a9c1be0d94f7c5f2a9c1be0d94f7c",
		EnrolledAt: benchStart.Add(time.Duration(i) * time.Second), Version: fmt.Sprintf("1.%d.0", i%7), Tags: []string{"prod", "linux"},
		Last: fleet.LastSeen{At: new(time.Time), Status: "online", Message: "Running"},
		LocalMetadata: fmt.Appendf(nil, `{"elastic":{"agent":{"id":%q,"version":"1.0.0","snapshot":false,"upgradeable":true,"log_level":"info"}},`+
			`"host":{"hostname":"host-%06d.example.internal","name":"host-%06d","architecture":"x86_64","id":"5f2a9c1be0d94f7c","ip":["10.0.0.%d/24","fe80::1/64"],"mac":["02:42:ac:11:00:02"]},`+
			`"os":{"family":"debian","kernel":"6.18.0-amd64","platform":"debian","version":"13 (trixie)","name":"Debian GNU/Linux","full":"Debian GNU/Linux trixie(13)","type":"linux"}}`,
			benchID(i), i, i, i%250),
		Components: []byte(`[{"id":"log-default","type":"log","status":"HEALTHY","message":"Healthy: communicating with pid '1234'","units":[{"id":"log-default","type":"output","status":"HEALTHY","message":"Healthy"}]}]`),
	}
	*a.Last.At = benchStart.Add(time.Duration(i*7919%benchAgents) * time.Millisecond)
	return a
}

// benchStore opens a file with the whole fleet, which the first benchmark creates.
func benchStore(b *testing.B) *Store {
	b.Helper()
	benchOnce.Do(func() {
		dir, err := os.MkdirTemp("", "m")
		if err != nil {
			b.Fatal(err)
		}
		benchPath = filepath.Join(dir, "muster.db")
		s, err := Open(context.Background(), benchPath, Options{})
		if err != nil {
			b.Fatal(err)
		}
		createFleet(b, s, benchAgents)
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	})
	s, err := Open(b.Context(), benchPath, Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	s.OnAgentChange(func([]store.AgentChange) {}) // as in a server
	if info, err := os.Stat(benchPath); err == nil {
		b.ReportMetric(float64(info.Size())/1e6, "file-MB")
	}
	return s
}

func createFleet(b *testing.B, s *Store, n int) {
	b.Helper()
	var all sync.WaitGroup
	for w := range 64 {
		all.Go(func() {
			for i := w; i < n; i += 64 {
				if err := s.Agents().Create(context.Background(), benchAgent(i)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// measure starts to measure processor time, on which other load of the machine has little
// effect. The returned function reports it per operation.
func measure(b *testing.B) (report func()) {
	b.Helper()
	begin := processor.Spent(b)
	return func() { b.ReportMetric(float64(processor.Spent(b)-begin)/1e3/float64(b.N), "cpu-µs/op") }
}

// BenchmarkTouch flushes a third of the fleet in random order.
func BenchmarkTouch(b *testing.B) {
	s := benchStore(b)
	const batch = 33_000
	round := 0
	order := rand.New(rand.NewPCG(1, 2)).Perm(benchAgents) //nolint:gosec // a benchmark
	touches := make([]fleet.Touch, batch)
	report := measure(b)
	for b.Loop() {
		round++
		for i := range touches {
			t := fleet.Touch{AgentID: benchID(order[(i+round*batch)%benchAgents]), At: benchStart.Add(time.Duration(round) * time.Hour)}
			if i%20 == 0 {
				t.Status, t.Message = "degraded", "one of four"
			}
			touches[i] = t
		}
		if err := s.Agents().Touch(b.Context(), touches); err != nil {
			b.Fatal(err)
		}
	}
	report()
	b.ReportMetric(float64(batch*b.N)/b.Elapsed().Seconds(), "agents/s")
}

func BenchmarkGet(b *testing.B) {
	s := benchStore(b)
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a benchmark
	report := measure(b)
	for b.Loop() {
		if _, err := s.Agents().Get(b.Context(), benchID(r.IntN(benchAgents))); err != nil {
			b.Fatal(err)
		}
	}
	report()
}

func BenchmarkByAccessKey(b *testing.B) {
	s := benchStore(b)
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a benchmark
	report := measure(b)
	for b.Loop() {
		if _, err := s.Agents().ByAccessKey(b.Context(), "k"+benchID(r.IntN(benchAgents))); err != nil {
			b.Fatal(err)
		}
	}
	report()
}

// BenchmarkByAccessKeyParallel measures the read of a check-in when many agents check in at
// once.
func BenchmarkByAccessKeyParallel(b *testing.B) {
	s := benchStore(b)
	b.ResetTimer()
	defer measure(b)()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if _, err := s.Agents().ByAccessKey(b.Context(), "k"+benchID(rand.IntN(benchAgents))); err != nil { //nolint:gosec // a benchmark
				b.Error(err)
				return
			}
		}
	})
}

func BenchmarkUpdate(b *testing.B) {
	s := benchStore(b)
	for name, parallel := range map[string]int{"one after the other": 1, "200 at once": 100} { // times two processors
		b.Run(name, func(b *testing.B) {
			b.SetParallelism(parallel)
			one := func() {
				_, err := store.UpdateAgent(b.Context(), s.Agents(), benchID(rand.IntN(benchAgents)), func(a *fleet.Agent) bool { //nolint:gosec // a benchmark
					a.UpgradeDetails = &agentapi.UpgradeDetails{State: agentapi.UpgradeDownloading, Metadata: agentapi.UpgradeMetadata{DownloadPercent: rand.Float64()}} //nolint:gosec // a benchmark
					return true
				})
				if err != nil {
					b.Error(err)
				}
			}
			if parallel == 1 {
				report := measure(b)
				for b.Loop() {
					one()
				}
				report()
				return
			}
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					one()
				}
			})
		})
	}
}

func BenchmarkList(b *testing.B) {
	s := benchStore(b)
	for _, by := range []store.AgentSort{store.ByEnrolledAt, store.ByHostname, store.ByVersion, store.ByLastCheckin} {
		for name, q := range map[string]store.AgentQuery{
			"first page":          {},
			"page at 50,000":      {Offset: 50_000},
			"of a policy, active": {AgentFilter: store.AgentFilter{PolicyID: "policy-3", ActiveOnly: true}},
			"seen lately": {AgentFilter: store.AgentFilter{SeenSince: map[string]time.Time{
				"policy-1": benchStart, "policy-2": benchStart, "policy-3": benchStart, "policy-4": benchStart, "policy-5": benchStart,
			}}},
		} {
			b.Run(string(by)+"/"+name, func(b *testing.B) {
				q.Sort, q.Limit = by, 20
				report := measure(b)
				for b.Loop() {
					if _, _, err := s.Agents().List(b.Context(), q); err != nil {
						b.Fatal(err)
					}
				}
				report()
			})
		}
	}
}

// BenchmarkQuery measures a page of 20 with its total for several queries, and the values
// that a search bar offers for a field.
func BenchmarkQuery(b *testing.B) {
	s := benchStore(b)
	timeouts := map[string]time.Duration{}
	for i := range 10 {
		timeouts[fmt.Sprintf("policy-%d", i)] = fleet.DefaultInactivityTimeout
	}
	now := benchStart.Add(6 * time.Minute)
	for _, query := range []string{
		"", "status: online", "status: offline", "tags: prod", "agent.version > 1.3.0", "policy_id: policy-3 and status: online", "last_checkin_message: running", "last_checkin_message: r*",
		"local_metadata.host.hostname: \"host-000077\"", "local_metadata.host.hostname.keyword: host-0000*", "local_metadata.os.platform: debian", "upgrade_details.state: *", "trixie",
	} {
		f, err := fleet.SelectAgents(query, false, timeouts, now)
		if err != nil {
			b.Fatal(err)
		}
		b.Run("page/"+query, func(b *testing.B) {
			report := measure(b)
			for b.Loop() {
				if _, _, err := s.Agents().List(b.Context(), store.AgentQuery{AgentFilter: store.AgentFilter{Query: f}, Limit: 20, Desc: true}); err != nil {
					b.Fatal(err)
				}
			}
			report()
		})
	}
	schema := fleet.AgentSchema(nil)
	for _, field := range []string{"tags", "agent.version", "policy_id", "local_metadata.os.platform", "local_metadata.host.hostname"} {
		b.Run("values/"+field, func(b *testing.B) {
			report := measure(b)
			for b.Loop() {
				if _, err := s.Agents().Values(b.Context(), store.AgentFilter{}, schema.Field(field), "", 20); err != nil {
					b.Fatal(err)
				}
			}
			report()
		})
	}
}

func BenchmarkFacts(b *testing.B) {
	s := benchStore(b)
	report := measure(b)
	for b.Loop() {
		n := 0
		if err := s.Agents().Facts(b.Context(), store.AgentFilter{}, func(string, fleet.StatusFacts) { n++ }); err != nil || n != benchAgents {
			b.Fatal(n, err)
		}
	}
	report()
}

// BenchmarkCountStatuses measures the status counts of the agents page.
func BenchmarkCountStatuses(b *testing.B) {
	s := benchStore(b)
	timeouts := map[string]time.Duration{}
	for i := range 10 {
		timeouts[fmt.Sprintf("policy-%d", i)] = time.Duration(i+1) * time.Hour
	}
	report := measure(b)
	for b.Loop() {
		counts, err := store.CountStatuses(b.Context(), s.Agents(), store.AgentFilter{}, timeouts, benchStart)
		all := 0
		for _, n := range counts {
			all += n
		}
		if err != nil || all != benchAgents {
			b.Fatal(all, err)
		}
	}
	report()
}

func benchAction(id string, n int) fleet.Action {
	a := fleet.Action{ID: id, Type: agentapi.ActionUpgrade, Data: []byte(`{"version":"1.1.0"}`), CreatedAt: benchStart, Actioned: n}
	for i := range n {
		a.Agents = append(a.Agents, benchID(i))
	}
	return a
}

func BenchmarkCreateAction(b *testing.B) {
	s := benchStore(b)
	for _, n := range []int{1, 10_000, 100_000} {
		a := benchAction("", n)
		b.Run(fmt.Sprintf("for %d agents", n), func(b *testing.B) {
			report := measure(b)
			for b.Loop() {
				a.ID = fleet.NewID()
				if _, err := s.Actions().Create(b.Context(), a); err != nil {
					b.Fatal(err)
				}
			}
			report()
		})
	}
}

// BenchmarkPending measures the query that each of 10,000 agents makes after an upgrade of
// all.
func BenchmarkPending(b *testing.B) {
	s := fresh(b)
	for _, c := range []struct {
		name, id string
		agents   int
	}{{"none at all", "nobody", 0}, {"none of one for 10,000 agents", "nobody", 10_000}, {"one for 10,000 agents", benchID(77), 0}} {
		id := c.id
		if c.agents > 0 {
			if _, err := s.Actions().Create(b.Context(), benchAction("act", c.agents)); err != nil {
				b.Fatal(err)
			}
		}
		b.Run(c.name, func(b *testing.B) {
			report := measure(b)
			for b.Loop() {
				if _, err := s.Actions().Pending(b.Context(), id, 0, benchStart, 100); err != nil {
					b.Fatal(err)
				}
			}
			report()
		})
	}
}

func BenchmarkPutResults(b *testing.B) {
	s := fresh(b)
	i := 0
	b.Run("one", func(b *testing.B) {
		report := measure(b)
		for b.Loop() {
			i++
			if _, err := s.Results().Put(b.Context(), []fleet.Result{{ActionID: "act", AgentID: fmt.Sprint(i), Timestamp: benchStart}}); err != nil {
				b.Fatal(err)
			}
		}
		report()
	})
	b.Run("100 together", func(b *testing.B) {
		list := make([]fleet.Result, 100)
		report := measure(b)
		for b.Loop() {
			for k := range list {
				i++
				list[k] = fleet.Result{ActionID: "act", AgentID: fmt.Sprint(i), Timestamp: benchStart}
			}
			if _, err := s.Results().Put(b.Context(), list); err != nil {
				b.Fatal(err)
			}
		}
		report()
	})
	b.Run("counts", func(b *testing.B) {
		report := measure(b)
		for b.Loop() {
			if _, err := s.Results().Counts(b.Context(), []string{"act"}); err != nil {
				b.Fatal(err)
			}
		}
		report()
	})
}

// BenchmarkAcks measures the acknowledgements of an UPGRADE by a fleet, from as many
// concurrent callers as one process serves.
func BenchmarkAcks(b *testing.B) {
	s := fresh(b)
	s.OnAgentChange(func([]store.AgentChange) {}) // as in a server
	const callers = 512
	report := measure(b)
	var next atomic.Int64
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for {
				i := int(next.Add(1))
				if i > b.N {
					return
				}
				_, err := s.Agents().Report(b.Context(), store.Report{Results: []fleet.Result{{
					ActionID: "0f7c2b1e-54d8-4f0a-9a55-3d1c6f0b7e21", AgentID: benchID(i), Hostname: fmt.Sprintf("host-%06d.example.internal", i), Timestamp: benchStart,
				}}})
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	report()
	counts, err := s.Results().Counts(b.Context(), []string{"0f7c2b1e-54d8-4f0a-9a55-3d1c6f0b7e21"})
	if n := counts["0f7c2b1e-54d8-4f0a-9a55-3d1c6f0b7e21"].Acked; err != nil || n != b.N {
		b.Fatal(n, err)
	}
}

// BenchmarkUpdateMany measures one page of an order for a fleet of 18,000: reading, marking
// and writing its agents.
func BenchmarkUpdateMany(b *testing.B) {
	s := fresh(b)
	s.OnAgentChange(func([]store.AgentChange) {}) // as in a server
	const fleetSize, page = 18_000, 1000
	createFleet(b, s, fleetSize)
	ids := make([]string, page)
	round := 0
	next := func() {
		for i := range ids {
			ids[i] = benchID((round*page + i) % fleetSize)
		}
		round++
	}
	b.Run("read", func(b *testing.B) {
		report := measure(b)
		for b.Loop() {
			next()
			if list, err := s.Agents().GetMany(b.Context(), ids); err != nil || len(list) != page {
				b.Fatal(len(list), err)
			}
		}
		report()
	})
	b.Run("read and write", func(b *testing.B) {
		report := measure(b)
		for b.Loop() {
			next()
			list, err := s.Agents().GetMany(b.Context(), ids)
			if err != nil {
				b.Fatal(err)
			}
			for i := range list {
				list[i].BeginUpgrade("0f7c2b1e-54d8-4f0a-9a55-3d1c6f0b7e21", "1.9.0", benchStart.Add(time.Duration(round)*time.Second))
			}
			errs, err := s.Agents().UpdateMany(b.Context(), list)
			if err := errors.Join(append(errs, err)...); err != nil {
				b.Fatal(err)
			}
		}
		report()
	})
}

func BenchmarkQuickCheck(b *testing.B) {
	s := benchStore(b)
	report := measure(b)
	for b.Loop() {
		var verdict string
		if err := s.readers.QueryRow(`PRAGMA quick_check`).Scan(&verdict); err != nil || verdict != "ok" {
			b.Fatal(verdict, err)
		}
	}
	report()
}

// BenchmarkCensus measures the read of the exposure budget, every few seconds.
func BenchmarkCensus(b *testing.B) {
	s := benchStore(b)
	report := measure(b)
	for b.Loop() {
		n := 0
		if err := s.Agents().Census(b.Context(), func(fleet.Census) { n++ }); err != nil || n != benchAgents {
			b.Fatal(n, err)
		}
	}
	report()
}

// BenchmarkEach measures reading the fleet as a preview does.
func BenchmarkEach(b *testing.B) {
	s := benchStore(b)
	for name, filter := range map[string]store.AgentFilter{"all": {}, "of a policy": {PolicyID: "policy-3"}} {
		b.Run(name, func(b *testing.B) {
			report := measure(b)
			for b.Loop() {
				if err := s.Agents().Each(b.Context(), filter, func(fleet.Agent) {}); err != nil {
					b.Fatal(err)
				}
			}
			report()
		})
	}
}

// benchTargets returns targets as they are at the start of a rollout, or at its end with
// their history.
func benchTargets(rollout string, n int, ended bool) []fleet.Target {
	list := make([]fleet.Target, n)
	for i := range list {
		t := fleet.Target{
			RolloutID: rollout, AgentID: benchID(i), Hostname: fmt.Sprintf("host-%06d.example.internal", i), Batch: i / 1000, Place: i,
			State: fleet.TargetPending, From: "1.0.0", To: "1.1.0", Values: []string{"berlin"}, Site: "berlin",
		}
		if ended {
			t.State, t.Code, t.ActionID, t.Attempts = fleet.TargetSucceeded, fleet.WhyHealthy, rollout+"-1-"+t.AgentID, 1
			t.OfferedAt, t.ReachedAt, t.SignAt, t.EndedAt = &benchStart, &benchStart, &benchStart, &benchStart
			for _, state := range []fleet.TargetState{fleet.TargetOffered, fleet.TargetUpgrading, fleet.TargetVerifying, fleet.TargetSucceeded} {
				t.History = append(t.History, fleet.TargetChange{At: benchStart, State: state, Phase: "UPG_WATCHING"})
			}
		}
		list[i] = t
	}
	return list
}

func BenchmarkCreateTargets(b *testing.B) {
	s := fresh(b)
	for _, n := range []int{10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			list := benchTargets("", n, false)
			report := measure(b)
			for b.Loop() {
				id := fleet.NewID()
				for i := range list {
					list[i].RolloutID = id
				}
				if err := s.Targets().Create(b.Context(), list); err != nil {
					b.Fatal(err)
				}
			}
			report()
		})
	}
}

// BenchmarkTargets measures what rollouts of 10,000 and of 100,000 read and write of their
// targets.
func BenchmarkTargets(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		s := fresh(b)
		for _, id := range []string{"at the start", "at the end"} {
			if err := s.Targets().Create(b.Context(), benchTargets(id, n, id == "at the end")); err != nil {
				b.Fatal(err)
			}
			b.Run(fmt.Sprintf("each of %d, %s", n, id), func(b *testing.B) {
				report := measure(b)
				for b.Loop() {
					if err := s.Targets().Each(b.Context(), id, func(fleet.Target) {}); err != nil {
						b.Fatal(err)
					}
				}
				report()
			})
		}
		b.Run(fmt.Sprintf("a batch of 1,000 of %d changes", n), func(b *testing.B) {
			ids := make([]string, 1000)
			for i := range ids {
				ids[i] = benchID(n/2 + i)
			}
			list, err := s.Targets().GetMany(b.Context(), "at the end", ids)
			if err != nil || len(list) != len(ids) {
				b.Fatal(len(list), err)
			}
			report := measure(b)
			for round := 0; b.Loop(); round++ {
				for i := range list {
					list[i].State = []fleet.TargetState{fleet.TargetFailed, fleet.TargetVerifying}[(i+round)%2]
				}
				revisions, errs, err := s.Targets().UpdateMany(b.Context(), list)
				if err := errors.Join(append(errs, err)...); err != nil {
					b.Fatal(err)
				}
				for i := range list {
					list[i].Revision = revisions[i]
				}
			}
			report()
		})
		last := n/1000 - 1
		for name, q := range map[string]store.TargetQuery{
			"all": {}, "the last of all": {Offset: n - 20}, "of the last batch": {Batch: &last}, "in one state": {States: []fleet.TargetState{fleet.TargetFailed}},
		} {
			b.Run(fmt.Sprintf("page of %d, %s", n, name), func(b *testing.B) {
				q.RolloutID, q.Limit = "at the end", 20
				report := measure(b)
				for b.Loop() {
					if _, _, err := s.Targets().List(b.Context(), q); err != nil {
						b.Fatal(err)
					}
				}
				report()
			})
		}
	}
}
