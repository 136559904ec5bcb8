// Package elsewhere runs the agent where no systemd starts it: in a container, under OpenRC and
// System V init, and without root. The tests have the build tag release, since
// machines and engines are slow, and belong to the test of a release. agent/ELSEWHERE.md has what
// they show.
package elsewhere
