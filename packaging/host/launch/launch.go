// Package launch starts the programs of a host where the usual ways do not do: so that a program
// outlives the one that starts it, as the watcher does the agent, and as a service of Windows,
// whose service control manager expects answers. On other systems a service manager needs nothing
// from them.
package launch
