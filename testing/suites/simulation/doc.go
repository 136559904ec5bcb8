// Package simulation runs rollouts on a fleet of simulated agents with the real parts of
// the server: planner, reconciler, check-ins, acknowledgements, beacons and store. Time
// is virtual, so a week of a rollout takes seconds. The scripts in testdata are scenarios
// with the expected output of each command; `go test -update` rewrites the output, and
// the diff must be reviewed. Rollouts in lockstep run with seeded faults of hosts and
// servers instead, and what must never happen is checked after each step of each host.
package simulation
