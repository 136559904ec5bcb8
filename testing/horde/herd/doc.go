// Package herd is thousands of agents in one process: each has its own
// connection over TLS and speaks the real protocol, and costs some kilobytes
// while it waits. A few event loops own the agents; an agent that is parked has no
// goroutine. Who wants to load a server (package scenario) starts one herd or
// several, the others as child processes, and talks to all of them in the same way,
// through net/rpc: methods of [Service] are what a herd can be told.
//
// The agents check the server while they load it: an action that comes twice, one
// that nobody ordered, an acknowledgement that is refused and an answer of 5xx
// are counted and told.
package herd
