// Package cluster tests the guarantees of several servers with the real programs: three
// servers on an Elasticsearch of three nodes, and a fleet of simulated agents, each parked
// at one server and ready to move to another. Operators act at all three servers while
// servers and nodes are killed. A history of their answers and of the agents' deliveries
// is recorded and checked. DESIGN.md describes the guarantees and the harness.
package cluster
