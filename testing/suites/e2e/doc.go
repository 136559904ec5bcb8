// Package e2e has the end-to-end tests: the real programs on this machine's loopback,
// started as users start them. Package harness starts and observes them.
package e2e
