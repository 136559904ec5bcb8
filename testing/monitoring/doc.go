// Package monitoring tests the alerts and the dashboard of packaging/monitoring, by Prometheus' own
// tool and by the list of metrics that the server exports.
package monitoring
