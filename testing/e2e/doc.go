// Package e2e holds the end-to-end tests: the real programs, started as their
// users start them, on this machine's loopback. package lab starts and watches
// them; the stories are here.
package e2e
