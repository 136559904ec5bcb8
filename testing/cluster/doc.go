// Package cluster proves what replicas promise, with the real programs: three
// servers on an Elasticsearch of three nodes, and a fleet of simulated agents,
// each parked at one server and ready to move to another. Operators act at all
// three servers while servers and nodes are killed. What they were answered, and
// what the agents were given, is written down and judged. DESIGN.md says what is
// promised and how the parts of the harness fit together.
package cluster
