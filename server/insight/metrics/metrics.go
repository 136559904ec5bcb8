// Package metrics exports rollouts and the state of the fleet to Prometheus. Counters
// are fed from the event stream, so each server counts all events since its own start,
// whichever server caused them: scrape one server, or take the maximum. Gauges are read
// from the store on a scrape.
package metrics

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Buckets of the histograms, in seconds. A rollout lasts from the minutes of an
// emergency to a week with windows; an upgrade from seconds with a cached package to a
// day for an absent agent.
var (
	rolloutBuckets = []float64{60, 300, 900, 1800, 3600, 2 * 3600, 4 * 3600, 8 * 3600, 24 * 3600, 3 * 24 * 3600, 7 * 24 * 3600}
	targetBuckets  = []float64{5, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 6 * 3600, 24 * 3600}
)

// Metrics are the metrics of one server.
type Metrics struct {
	events   *event.Stream
	registry *prometheus.Registry

	rollouts       *prometheus.CounterVec
	rolloutSeconds *prometheus.HistogramVec
	groups         *prometheus.CounterVec
	groupSeconds   *prometheus.HistogramVec
	targets        *prometheus.CounterVec
	targetSeconds  *prometheus.HistogramVec
	// components, policies and sites are those with series of their own. Only count uses them.
	components, policies, sites labelValues
}

// maxComponents bounds the components with series of their own: as many as one agent runs.
// Further ones are counted as other.
const maxComponents = agentapi.MaxComponents

// Bounds of the policies and of the sites with series of their own; further ones are counted as
// other. Most sites have hosts of few policies, and even all pairs are 10,000 series of each phase
// or status, which one Prometheus keeps with ease.
const (
	MaxPolicies = 50
	MaxSites    = 200
)

// other is the value of a label for what has no series of its own.
const other = "other"

// labelValues bounds the values of a label: the first that come have series of their own.
type labelValues struct {
	most  int
	known map[string]bool
}

// of returns the value of the label for name. An empty one is the same to Prometheus as none.
func (v *labelValues) of(name string) string {
	if name == "" || v.known[name] {
		return name
	}
	if len(v.known) >= v.most {
		return other
	}
	if v.known == nil {
		v.known = map[string]bool{}
	}
	v.known[name] = true
	return name
}

// New returns the metrics of a server, including the collectors in more. Counters
// advance only while Run is running.
func New(s store.Store, events *event.Stream, now clock.Clock, more ...prometheus.Collector) *Metrics {
	m := &Metrics{
		events:     events,
		components: labelValues{most: maxComponents}, policies: labelValues{most: MaxPolicies}, sites: labelValues{most: MaxSites},
		registry: prometheus.NewRegistry(),
		rollouts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_rollout_total", Help: "Rollouts that ended.",
		}, []string{"component", "strategy", "status"}),
		rolloutSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "muster_rollout_duration_seconds", Help: "How long rollouts took from their start to their end.", Buckets: rolloutBuckets,
		}, []string{"component", "strategy", "status"}),
		groups: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_rollout_group_total", Help: "Groups of rollouts that ended.",
		}, []string{"failure_policy", "status"}),
		groupSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "muster_rollout_group_duration_seconds", Help: "How long groups of rollouts took from their start to their end.", Buckets: rolloutBuckets,
		}, []string{"failure_policy", "status"}),
		targets: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_rollout_target_upgrades_total", Help: "Upgrades of single agents in rollouts that ended, by the id of their policy and their label site.",
		}, []string{"component", "policy", "site", "status"}),
		targetSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "muster_rollout_target_upgrade_duration_seconds", Help: "How long upgrades of single agents took from the offer to the verdict.", Buckets: targetBuckets,
		}, []string{"component", "status"}),
	}
	m.registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		m.rollouts, m.rolloutSeconds, m.groups, m.groupSeconds, m.targets, m.targetSeconds, &fleetCollector{store: s, now: now, policies: labelValues{most: MaxPolicies}, sites: labelValues{most: MaxSites}},
	)
	m.registry.MustRegister(more...)
	return m
}

// ServeCertificate adds when the server's certificate ends.
func (m *Metrics) ServeCertificate(c *tls.Config) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "muster_certificate_end_timestamp_seconds", Help: "When the server's certificate ends; 0 if it has none.",
	}, func() float64 {
		pair, err := c.GetCertificate(nil)
		if err != nil {
			return 0
		}
		return float64(pair.Leaf.NotAfter.Unix())
	}))
}

// Handler serves scrapes.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// Run counts events until ctx ends.
func (m *Metrics) Run(ctx context.Context) {
	m.events.Follow(ctx, func(int64) {}, func(events []fleet.Event) {
		for i := range events {
			m.count(&events[i])
		}
	})
}

func (m *Metrics) count(e *fleet.Event) {
	switch e.Type {
	case fleet.EventRolloutCompleted, fleet.EventRolloutFailed, fleet.EventRolloutCancelled, fleet.EventRollbackDone:
		var d fleet.RolloutEventData
		if json.Unmarshal(e.Data, &d) != nil {
			return // without its labels the count would mislead
		}
		component, strategy, status := m.components.of(d.Component), strategyLabel(d.Strategy), stateLabel(d.State)
		m.rollouts.WithLabelValues(component, strategy, status).Inc()
		m.rolloutSeconds.WithLabelValues(component, strategy, status).Observe(d.Seconds)
	case fleet.EventGroupCompleted, fleet.EventGroupPartial, fleet.EventGroupFailed, fleet.EventGroupCancelled, fleet.EventGroupRolledBack:
		var d fleet.GroupEventData
		if json.Unmarshal(e.Data, &d) != nil {
			return
		}
		policy, status := policyLabel(d.FailurePolicy), groupLabel(d.State)
		m.groups.WithLabelValues(policy, status).Inc()
		m.groupSeconds.WithLabelValues(policy, status).Observe(d.Seconds)
	case fleet.EventTargetCompleted:
		var d fleet.TargetEventData
		if json.Unmarshal(e.Data, &d) != nil {
			return
		}
		status := other
		if new(fleet.Counts).Of(d.State) != nil {
			status = string(d.State)
		}
		component := m.components.of(d.Component)
		m.targets.WithLabelValues(component, m.policies.of(d.Policy), m.sites.of(d.Site), status).Inc()
		// Without policy and site: each pair would have as many series as there are buckets.
		m.targetSeconds.WithLabelValues(component, status).Observe(d.Seconds)
	}
}

// strategyLabel bounds the label's values, whatever an event of a newer server
// contains.
func strategyLabel(k fleet.StrategyKind) string {
	if plan.Known(k) {
		return string(k)
	}
	return other
}

func policyLabel(p fleet.FailurePolicy) string {
	switch p {
	case fleet.PartialOK, fleet.RollbackAll, fleet.ManualPolicy:
		return string(p)
	}
	return other
}

func groupLabel(s fleet.GroupState) string {
	switch s {
	case fleet.GroupCompleted, fleet.GroupPartial, fleet.GroupFailed, fleet.GroupCancelled, fleet.GroupRolledBack:
		return string(s)
	}
	return other
}

func stateLabel(s fleet.RolloutState) string {
	switch s {
	case fleet.RolloutCompleted, fleet.RolloutFailed, fleet.RolloutCancelled, fleet.RolloutRolledBack:
		return string(s)
	}
	return other
}
