// Package bench measures what issue after issue promises, on this machine's
// loopback: of an upgrade, with the real programs, how long one takes, how long
// what the agent runs is away, how soon a crash loop is found out, and what agent
// and watcher keep in memory; of a rollout, with the real server and agents that
// speak the protocol, how long its steps take; of both stores, what enrolling,
// check-ins, actions, acknowledgements and queries cost on each. What a request costs
// before any of Muster's own work, testing/horde's scenario floor says.
// `go tool mage bench` runs it; it prints tables and writes them to RESULTS.md,
// ROLLOUTS.md and STORES.md beside this file. Nothing here is a test:
// figures depend on the machine.
//
// One part alone runs with `go test -tags nomsgpack -run '^$' -bench Stores
// ./testing/bench`; variables that make that of the stores smaller stand in
// store_test.go. In a processor profile of the
// first, -tagfocus who=server shows the servers without the agents.
package bench
