// Package generator runs thousands of simulated agents in one process. Each agent
// has its own TLS connection, speaks the real protocol, and costs a few kilobytes
// while it waits: a few event loops own the agents, and a parked agent has no
// goroutine. Package scenario starts one or more generators as child processes and
// controls them over net/rpc, through the methods of [Service].
//
// The agents check the server while they load it. They count and report an action
// that is delivered twice or that nobody ordered, an acknowledgement that is
// refused, and an answer of 5xx.
package generator
