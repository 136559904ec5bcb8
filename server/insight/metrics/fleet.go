package metrics

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

const (
	// FreshFor is how long values from the store are served, so that several scrapers
	// cost no more than one.
	FreshFor = 10 * time.Second
	// readShare bounds the share of time spent reading a large fleet: values that took
	// a second to read are served for 20.
	readShare = 20
	// readTimeout is below Prometheus's default scrape timeout of ten seconds.
	readTimeout = 8 * time.Second
	// MaxRollouts bounds the rollouts with series of their own. Active rollouts lock
	// their policies, so there are few.
	MaxRollouts = 100
	// MaxGroups bounds the groups with series of their own, and the latest groups that are
	// read. Retention keeps as many.
	MaxGroups = 100
	// MaxInFlight bounds the targets in flight that one read takes, of all active rollouts. To
	// read so many takes a part of a second, and it is twenty times what one rollout upgrades at
	// a time by default. The targets of a rollout beyond it are counted by their state, with the
	// policy and the site other.
	MaxInFlight = 20 * fleet.DefaultMaxParallel
)

var (
	storeUp  = prometheus.NewDesc("muster_store_up", "Whether the store answered: if 0, series that are read from it are absent.", nil, nil)
	active   = prometheus.NewDesc("muster_rollout_active", "Rollouts that are running, paused or being cancelled.", nil, nil)
	progress = prometheus.NewDesc("muster_rollout_progress", "Share of the targets of an active rollout that are done, 0 to 1.", []string{"rollout", "component"}, nil)
	phase    = prometheus.NewDesc("muster_rollout_target_phase", "Targets of an active rollout that are being upgraded, by phase, the id of their policy and their label site; phases without any have no series.", []string{"rollout", "component", "phase", "policy", "site"}, nil)
	groups   = prometheus.NewDesc("muster_rollout_group_active", "Groups of rollouts that have something left to do.", nil, nil)
	stopped  = prometheus.NewDesc("muster_rollout_group_paused", "Active groups of rollouts that are paused.", nil, nil)
	done     = prometheus.NewDesc("muster_rollout_group_progress", "Share of the members of an active group that are done, 0 to 1.", []string{"group"}, nil)
	agents   = prometheus.NewDesc("muster_agents", "Agents by status.", []string{"status"}, nil)
	servers  = prometheus.NewDesc("muster_servers", "Servers that run, by version.", []string{"version"}, nil)
	uploads  = prometheus.NewDesc("muster_uploads", "Files that agents have sent and that the server keeps, by state: stored, or unfinished.", []string{"state"}, nil)
	uploaded = prometheus.NewDesc("muster_uploads_bytes", "Bytes of the files that agents have sent and that the server keeps, by state: stored, or unfinished.", []string{"state"}, nil)
	open     = prometheus.NewDesc("muster_incidents_open", "Incidents that are not resolved, by category.", []string{"category"}, nil)
)

// fleetCollector reads the state of the fleet and of active rollouts from the store.
// Ended rollouts have no series: they disappear with the next read.
type fleetCollector struct {
	store store.Store
	now   clock.Clock

	mu    sync.Mutex
	until time.Time
	last  []prometheus.Metric
	// counts caches the counts of active rollouts by revision, because their documents
	// are large.
	counts map[string]rolloutCounts
	// policies and sites are those with series of their own.
	policies, sites labelValues
}

type rolloutCounts struct {
	revision  int64
	component string
	fleet.Counts
}

// Describe implements prometheus.Collector.
func (s *fleetCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{storeUp, active, progress, phase, groups, stopped, done, agents, servers, uploads, uploaded, open} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (s *fleetCollector) Collect(ch chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if begun := s.now.UTC(); !begun.Before(s.until) {
		ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
		defer cancel()
		up := 1.0
		var err error
		if s.last, err = s.read(ctx, begun); err != nil {
			s.last, up = nil, 0
		}
		s.last = append(s.last, gauge(storeUp, up))
		ended := s.now.UTC()
		s.until = ended.Add(max(FreshFor, readShare*ended.Sub(begun)))
	}
	for _, m := range s.last {
		ch <- m
	}
}

func gauge(d *prometheus.Desc, v float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (s *fleetCollector) read(ctx context.Context, now time.Time) ([]prometheus.Metric, error) {
	var out []prometheus.Metric
	for _, part := range []func(context.Context, time.Time) ([]prometheus.Metric, error){s.agents, s.rollouts, s.groups, s.servers, s.uploads, s.incidents} {
		m, err := part(ctx, now)
		if err != nil {
			return nil, err
		}
		out = append(out, m...)
	}
	return out, nil
}

func (s *fleetCollector) groups(ctx context.Context, _ time.Time) ([]prometheus.Metric, error) {
	list, _, err := s.store.RolloutGroups().List(ctx, 0, MaxGroups)
	if err != nil {
		return nil, err
	}
	var out []prometheus.Metric
	running, paused := 0, 0
	for _, g := range list {
		if !g.State.Active() {
			continue
		}
		running++
		if g.State == fleet.GroupPaused {
			paused++
		}
		share := 0.0
		for _, m := range g.Members {
			if m.State != fleet.MemberPending && m.State != fleet.MemberRunning {
				share += 1 / float64(len(g.Members))
			}
		}
		out = append(out, gauge(done, share, g.ID))
	}
	return append(out, gauge(groups, float64(running)), gauge(stopped, float64(paused))), nil
}

func (s *fleetCollector) agents(ctx context.Context, now time.Time) ([]prometheus.Metric, error) {
	policies, _, err := s.store.Policies().List(ctx, 0, 0)
	if err != nil {
		return nil, err
	}
	timeouts := make(map[string]time.Duration, len(policies))
	for _, p := range policies {
		timeouts[p.ID] = p.InactivityTimeout
	}
	counts, err := store.CountStatuses(ctx, s.store.Agents(), store.AgentFilter{}, timeouts, now)
	if err != nil {
		return nil, err
	}
	var out []prometheus.Metric
	for _, status := range fleet.Statuses {
		out = append(out, gauge(agents, float64(counts[status]), string(status)))
	}
	return out, nil
}

func (s *fleetCollector) rollouts(ctx context.Context, _ time.Time) ([]prometheus.Metric, error) {
	heads, err := s.store.Rollouts().Active(ctx)
	if err != nil {
		return nil, err
	}
	out := []prometheus.Metric{gauge(active, float64(len(heads)))}
	known := map[string]rolloutCounts{}
	budget := MaxInFlight
	for _, h := range heads[:min(len(heads), MaxRollouts)] {
		c, ok := s.counts[h.ID]
		if !ok || c.revision != h.Revision {
			r, err := s.store.Rollouts().Get(ctx, h.ID)
			if fleet.KindOf(err) == fleet.NotFound && err != nil {
				continue
			}
			if err != nil {
				return nil, err
			}
			c = rolloutCounts{r.Revision, r.Plan.Component, r.Counts}
		}
		known[h.ID] = c
		done := 0.0
		if c.Total > 0 {
			done = 1 - float64(c.Pending+c.Held+c.InFlight())/float64(c.Total)
		}
		out = append(out, gauge(progress, done, h.ID, c.component))
		places, err := s.places(ctx, h.ID, c, &budget)
		if err != nil {
			return nil, err
		}
		for at, n := range places {
			out = append(out, gauge(phase, float64(n), h.ID, c.component, at.phase, at.policy, at.site))
		}
	}
	s.counts = known
	return out, nil
}

// place has the labels of targets in flight.
type place struct{ phase, policy, site string }

// inFlight are the states of targets that are being upgraded.
var inFlight = []fleet.TargetState{fleet.TargetOffered, fleet.TargetUpgrading, fleet.TargetVerifying}

// places counts the targets of a rollout that are in flight. It reads them as far as the budget
// goes, which it lowers: their phase may change while the rollout's counts do not.
func (s *fleetCollector) places(ctx context.Context, id string, c rolloutCounts, budget *int) (map[place]int, error) {
	counts := map[place]int{}
	if c.InFlight() == 0 {
		return counts, nil
	}
	if c.InFlight() > *budget {
		for _, state := range inFlight {
			if n := *c.Of(state); n > 0 {
				counts[place{fleet.TargetPhase(&fleet.Target{State: state}), other, other}] += n
			}
		}
		return counts, nil
	}
	list, _, err := s.store.Targets().List(ctx, store.TargetQuery{RolloutID: id, States: inFlight, Limit: *budget})
	if err != nil {
		return nil, err
	}
	*budget -= len(list)
	for i := range list {
		counts[place{fleet.TargetPhase(&list[i]), s.policies.of(list[i].Policy), s.sites.of(list[i].Site)}]++
	}
	return counts, nil
}

func (s *fleetCollector) servers(ctx context.Context, now time.Time) ([]prometheus.Metric, error) {
	list, _, err := s.store.Servers().List(ctx, 0, 0)
	if err != nil {
		return nil, err
	}
	running := map[string]int{}
	for i := range list {
		if !list[i].Away(now) {
			running[list[i].Version]++
		}
	}
	var out []prometheus.Metric
	for version, n := range running {
		out = append(out, gauge(servers, float64(n), version))
	}
	return out, nil
}

func (s *fleetCollector) uploads(ctx context.Context, _ time.Time) ([]prometheus.Metric, error) {
	list, _, err := s.store.Uploads().List(ctx, 0, 0) // package diagnostics bounds their number
	if err != nil {
		return nil, err
	}
	var out []prometheus.Metric
	for status, state := range map[fleet.UploadStatus]string{fleet.UploadReady: "stored", fleet.UploadAwaiting: "unfinished"} {
		count, size := 0, int64(0)
		for i := range list {
			if list[i].Status == status {
				count, size = count+1, size+list[i].Stored()
			}
		}
		out = append(out, gauge(uploads, float64(count), state), gauge(uploaded, float64(size), state))
	}
	return out, nil
}

func (s *fleetCollector) incidents(ctx context.Context, _ time.Time) ([]prometheus.Metric, error) {
	all, _, err := s.store.Incidents().List(ctx, 0, 0)
	if err != nil {
		return nil, err
	}
	counts := map[fleet.IncidentKind]int{}
	for _, i := range all {
		if i.State != fleet.IncidentResolved {
			counts[i.Category]++
		}
	}
	var out []prometheus.Metric
	for _, k := range fleet.IncidentKinds {
		out = append(out, gauge(open, float64(counts[k]), string(k)))
	}
	return out, nil
}
