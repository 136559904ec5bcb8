// Package horde is a fleet of simulated agents in front of the real server parts:
// planner, reconciler, check-ins, acknowledgements and beacons, over the real
// store. Time is virtual, so a week of a rollout takes seconds. The scripts in
// testdata are stories of rollouts with what is answered at each step; `go test
// -update` writes the answers anew, to be read before they are kept.
package horde
