// Package detach starts programs that outlive the one that starts them: the agent starts its
// watcher so, and the watcher an agent that no service manager supervises.
package detach
