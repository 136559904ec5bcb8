// Package bench measures on this machine's loopback: for an upgrade with the real programs,
// its duration, the outage of a component, the time to detect a crash loop, and the memory
// of agent and watcher; for a unit of systemd, its outage in an upgrade; for a rollout with
// the real server and simulated agents, the duration of its steps; for both stores, the
// cost of enrolment, check-ins, actions, acknowledgements and queries; for the web UI, its
// pages in Chromium with a large fleet. The scenario floor of testing/tools/loadtest measures what
// a request costs without Muster.
//
// `go tool mage bench` runs it. It prints tables and writes them to RESULTS.md,
// ROLLOUTS.md, STORES.md, DECLARED.md and CONSOLE.md beside this file. It has no tests, since figures depend on the
// machine.
//
// `go test -tags nomsgpack -run '^$' -bench Stores ./testing/suites/bench` runs one part.
// store_test.go lists environment variables that make the part about stores smaller. In
// its CPU profile, -tagfocus who=server shows the servers without the agents.
package bench
