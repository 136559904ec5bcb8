package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-fleet/muster/server/store/storehealth"
)

// Store collects whether the store is available.
func Store(h *storehealth.Monitor) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "muster_store_available", Help: "Whether the store accepts reads and writes, as seen by this server.",
	}, func() float64 {
		if h.Away() != nil {
			return 0
		}
		return 1
	})
}
