// Package monitoring tests packaging/release/monitoring: promtool tests the alerts, and a real
// Prometheus scrapes a real server to show that the dashboard and the alerts name metrics
// that exist.
package monitoring
