// Package metrics counts for Prometheus what happens in rollouts, and how the
// fleet stands. Counters are fed from the event stream, so each replica counts
// everything that has happened since its own start, whoever did it: scrape one,
// or take the maximum. Gauges are read from the store when they are asked for.
package metrics

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/event"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// Buckets of the histograms, in seconds. A rollout lasts between the minutes of
// an emergency and a week with windows; an upgrade between a cached package and
// an agent that came back after a day.
var (
	rolloutBuckets = []float64{60, 300, 900, 1800, 3600, 2 * 3600, 4 * 3600, 8 * 3600, 24 * 3600, 3 * 24 * 3600, 7 * 24 * 3600}
	targetBuckets  = []float64{5, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 6 * 3600, 24 * 3600}
)

// Metrics are the metrics of one replica.
type Metrics struct {
	events   *event.Stream
	registry *prometheus.Registry

	rollouts       *prometheus.CounterVec
	rolloutSeconds *prometheus.HistogramVec
	targets        *prometheus.CounterVec
	targetSeconds  *prometheus.HistogramVec
}

// New makes the metrics of a replica; Run must follow for the counters to move.
func New(s store.Store, events *event.Stream, now clock.Clock) *Metrics {
	m := &Metrics{
		events:   events,
		registry: prometheus.NewRegistry(),
		rollouts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_rollout_total", Help: "Rollouts that ended.",
		}, []string{"strategy", "status"}),
		rolloutSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "muster_rollout_duration_seconds", Help: "How long rollouts took from their start to their end.", Buckets: rolloutBuckets,
		}, []string{"strategy", "status"}),
		targets: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_rollout_target_upgrades_total", Help: "Upgrades of single agents in rollouts that ended.",
		}, []string{"status"}),
		targetSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "muster_rollout_target_upgrade_duration_seconds", Help: "How long upgrades of single agents took from the offer to the verdict.", Buckets: targetBuckets,
		}, []string{"status"}),
	}
	m.registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		m.rollouts, m.rolloutSeconds, m.targets, m.targetSeconds, &standing{store: s, now: now},
	)
	return m
}

// Handler answers scrapes.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// Run counts what happens from now on until ctx ends.
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
			return // counted under no name it would mislead
		}
		strategy, status := strategyLabel(d.Strategy), stateLabel(d.State)
		m.rollouts.WithLabelValues(strategy, status).Inc()
		m.rolloutSeconds.WithLabelValues(strategy, status).Observe(d.Seconds)
	case fleet.EventTargetCompleted:
		var d fleet.TargetEventData
		if json.Unmarshal(e.Data, &d) != nil {
			return
		}
		status := "other"
		if new(fleet.Counts).Of(d.State) != nil {
			status = string(d.State)
		}
		m.targets.WithLabelValues(status).Inc()
		m.targetSeconds.WithLabelValues(status).Observe(d.Seconds)
	}
}

// Labels have few values, whatever an event of a later server says.
func strategyLabel(k fleet.StrategyKind) string {
	switch k {
	case fleet.Rolling, fleet.Canary, fleet.AllAtOnce, fleet.Rings:
		return string(k)
	}
	return "other"
}

func stateLabel(s fleet.RolloutState) string {
	switch s {
	case fleet.RolloutCompleted, fleet.RolloutFailed, fleet.RolloutCancelled, fleet.RolloutRolledBack:
		return string(s)
	}
	return "other"
}
