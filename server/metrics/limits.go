package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-fleet/muster/server/limit"
)

// WatchLimits adds what this replica takes at once, and how much of it is in use.
// parked is how many agents are.
func (m *Metrics) WatchLimits(a *limit.Admission, parked func() int) {
	m.registry.MustRegister(&limits{a, parked})
}

var (
	agentsParked      = prometheus.NewDesc("muster_agents_parked", "Agents whose check-in is parked at this replica.", nil, nil)
	agentsConnected   = prometheus.NewDesc("muster_agents_connections", "Connections of agents that are open at this replica.", nil, nil)
	agentsMax         = prometheus.NewDesc("muster_agents_max", "Connections of agents that this replica takes.", nil, nil)
	agentsLimited     = prometheus.NewDesc("muster_agents_limited_total", "Connections beyond muster_agents_max, which were told so or closed.", nil, nil)
	handshakesRunning = prometheus.NewDesc("muster_handshakes_in_flight", "TLS handshakes of agents that are under way.", nil, nil)
	handshakesWaiting = prometheus.NewDesc("muster_handshakes_waiting", "Connections of agents that wait for their handshake; more may wait in the kernel.", nil, nil)
	handshakesMax     = prometheus.NewDesc("muster_handshakes_max", "Handshakes that this replica does at once.", nil, nil)
	handshakesDone    = prometheus.NewDesc("muster_handshakes_total", "TLS handshakes of agents that ended: full, resumed or failed.", []string{"result"}, nil)
	requestsRunning   = prometheus.NewDesc("muster_requests_in_flight", "Requests that are worked on, by kind; parked check-ins are not.", []string{"kind"}, nil)
	requestsWaiting   = prometheus.NewDesc("muster_requests_waiting", "Requests that wait for their turn, by kind.", []string{"kind"}, nil)
	requestsMax       = prometheus.NewDesc("muster_requests_max", "Requests that this replica works on at once, by kind.", []string{"kind"}, nil)
	requestsLimited   = prometheus.NewDesc("muster_requests_limited_total", "Requests that were told to come again later (429), by kind.", []string{"kind"}, nil)
	bodyBytes         = prometheus.NewDesc("muster_request_body_bytes", "Memory that bodies of agents' requests take.", nil, nil)
	bodyBytesMax      = prometheus.NewDesc("muster_request_body_bytes_max", "Memory that bodies of agents' requests may take.", nil, nil)
)

// limits reads an admission when it is asked.
type limits struct {
	admission *limit.Admission
	parked    func() int
}

// Describe describes nothing: there is one of it, and its series are as above.
func (l *limits) Describe(chan<- *prometheus.Desc) {}

func (l *limits) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	agents, handshakes, bodies := l.admission.Connections(), l.admission.Handshakes(), l.admission.Bodies()
	gauge(agentsParked, float64(l.parked()))
	gauge(agentsConnected, float64(agents.Used))
	gauge(agentsMax, float64(agents.Max))
	count(agentsLimited, agents.Limited)
	gauge(handshakesRunning, float64(handshakes.Used))
	gauge(handshakesWaiting, float64(handshakes.Waiting))
	gauge(handshakesMax, float64(handshakes.Max))
	full, resumed, failed := l.admission.HandshakesDone()
	count(handshakesDone, full, "full")
	count(handshakesDone, resumed, "resumed")
	count(handshakesDone, failed, "failed")
	for _, k := range limit.Kinds {
		use := l.admission.Use(k)
		gauge(requestsRunning, float64(use.Used), string(k))
		gauge(requestsWaiting, float64(use.Waiting), string(k))
		gauge(requestsMax, float64(use.Max), string(k))
		count(requestsLimited, use.Limited, string(k))
	}
	gauge(bodyBytes, float64(bodies.Used))
	gauge(bodyBytesMax, float64(bodies.Max))
	count(requestsLimited, bodies.Limited, "body")
}
