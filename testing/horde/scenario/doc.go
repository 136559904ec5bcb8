// Package scenario loads a server with herds of agents (package herd) and
// measures it: how long actions take to all agents and back, what parked agents
// cost, what a storm of reconnects does to everybody else. It starts the servers
// or is given some, divides the agents among processes, orders actions over the
// admin API as an operator does, and puts its figures into one [Table].
// testing/horde/load is its command line.
package scenario
