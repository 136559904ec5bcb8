// Package bench measures what issue after issue promises of an upgrade, with the
// real programs on this machine's loopback: how long one takes, how long what the
// agent runs is away, how soon a crash loop is found out, and what agent and
// watcher keep in memory. `go tool mage bench` runs it; it prints a table and
// writes it to RESULTS.md beside this file. Nothing here is a test: figures
// depend on the machine.
package bench
