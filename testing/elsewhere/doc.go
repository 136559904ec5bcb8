// Package elsewhere runs the agent where no systemd starts it: in a container, under OpenRC and
// System V init, and without root. The tests have the build tag release and belong to
// `go tool mage release-test`, because machines and engines are slow. agent/ELSEWHERE.md has what
// they show.
package elsewhere
