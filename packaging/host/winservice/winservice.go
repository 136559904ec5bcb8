// Package winservice runs a program as a service of Windows if the service control manager has
// started it. The agent and the watcher run so; on other systems a service manager needs nothing
// from them.
package winservice
