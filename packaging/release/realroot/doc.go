// Package realroot tests the packages of a release in real systems: machines with systemd, where
// Debian's own tools and rpm install, upgrade and remove them. `go tool mage releaseTest` runs it.
package realroot
