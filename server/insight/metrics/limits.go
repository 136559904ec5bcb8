package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-fleet/muster/server/agents/limit"
)

// Limits collects the limits of this server and their use. parked returns the number of
// parked agents.
func Limits(a *limit.Admission, parked func() int) prometheus.Collector {
	return &limits{a, parked}
}

var (
	agentsParked      = prometheus.NewDesc("muster_agents_parked", "Agents whose check-in is parked at this server.", nil, nil)
	agentsConnected   = prometheus.NewDesc("muster_agents_connections", "Connections of agents that are open at this server.", nil, nil)
	agentsMax         = prometheus.NewDesc("muster_agents_max", "Connections of agents that this server accepts.", nil, nil)
	agentsLimited     = prometheus.NewDesc("muster_agents_limited_total", "Connections beyond muster_agents_max, which were answered 429 or closed.", nil, nil)
	handshakesRunning = prometheus.NewDesc("muster_handshakes_in_flight", "TLS handshakes of agents in progress.", nil, nil)
	handshakesWaiting = prometheus.NewDesc("muster_handshakes_waiting", "Connections of agents that wait for their handshake; more may wait in the kernel.", nil, nil)
	handshakesMax     = prometheus.NewDesc("muster_handshakes_max", "Handshakes that this server makes at once.", nil, nil)
	handshakesDone    = prometheus.NewDesc("muster_handshakes_total", "TLS handshakes of agents that ended: full, resumed or failed.", []string{"result"}, nil)
	requestsRunning   = prometheus.NewDesc("muster_requests_in_flight", "Requests in progress, by kind; parked check-ins are not counted.", []string{"kind"}, nil)
	requestsWaiting   = prometheus.NewDesc("muster_requests_waiting", "Requests that wait to be handled, by kind.", []string{"kind"}, nil)
	requestsMax       = prometheus.NewDesc("muster_requests_max", "Requests that this server handles at once, by kind.", []string{"kind"}, nil)
	requestsLimited   = prometheus.NewDesc("muster_requests_limited_total", "Requests that were rejected with 429, by kind.", []string{"kind"}, nil)
	bodyBytes         = prometheus.NewDesc("muster_request_body_bytes", "Memory that bodies of agents' requests use.", nil, nil)
	bodyBytesMax      = prometheus.NewDesc("muster_request_body_bytes_max", "Memory that bodies of agents' requests may use.", nil, nil)
)

// limits collects the state of an admission.
type limits struct {
	admission *limit.Admission
	parked    func() int
}

// Describe sends nothing, which makes the collector unchecked. It is registered only
// once.
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
