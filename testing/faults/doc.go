// Package faults is the crash proof: it runs whole hosts, with the real agent
// and the real watcher in them, on a disk and a network of its own, stops them at
// every single call that changes something, and looks at what becomes of them.
// `go test` runs the proof; `go tool mage proof` also writes PROOF.md from it.
// DESIGN.md beside this file says what is taken for granted and what is not.
package faults
