package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-fleet/muster/server/outage"
)

// WatchOutage adds how this replica bridges an outage of the store.
func (m *Metrics) WatchOutage(k *outage.Keeper) {
	gauge := func(name, help string, value func() float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
	gauge("muster_store_available", "Whether the store takes reads and writes, as this replica sees it.", func() float64 {
		if k.Away() != nil {
			return 0
		}
		return 1
	})
	gauge("muster_outage_journal_messages", "Messages of agents that are kept until the store is back.", func() float64 {
		n, _ := k.Journal.Size()
		return float64(n)
	})
	gauge("muster_outage_journal_bytes", "What the kept messages take of outage.max_bytes.", func() float64 {
		_, size := k.Journal.Size()
		return float64(size)
	})
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "muster_outage_messages_dropped_total", Help: "Kept messages that nothing could come of.",
	}, func() float64 { return float64(k.Dropped()) }))
}
