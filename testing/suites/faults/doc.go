// Package faults is the crash proof. It runs hosts with the real agent and the real watcher
// on a simulated disk and network, interrupts them before every call that changes
// something, and checks that they recover. `go test` runs the proof; `go tool mage proof`
// also writes PROOF.md. DESIGN.md lists the assumptions.
package faults
