package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-fleet/muster/server/storehealth"
)

// WatchStore adds whether the store can be reached.
func (m *Metrics) WatchStore(h *storehealth.Monitor) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "muster_store_available", Help: "Whether the store takes reads and writes, as this server sees it.",
	}, func() float64 {
		if h.Away() != nil {
			return 0
		}
		return 1
	}))
}
