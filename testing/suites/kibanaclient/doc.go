// Package kibanaclient runs Elastic's own Go client of Kibana's Fleet API against a real
// server with real agents: every call that the client has, and the client's own
// integration tests. It is a module of its own, so that the client's dependencies are none
// of the product's.
package kibanaclient
