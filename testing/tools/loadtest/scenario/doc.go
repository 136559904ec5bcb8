// Package scenario loads a server with simulated agents (package generator) and
// measures it: the time of an action to all agents and back, the cost of parked
// agents, the effect of a storm of reconnects. It starts a server or uses a running
// one, divides the agents among child processes, orders actions over the admin API as
// an operator does, and collects its figures in a [Table]. testing/tools/loadtest is its
// command line.
package scenario
