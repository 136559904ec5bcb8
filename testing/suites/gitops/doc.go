// Package gitops runs the tools with which people declare fleets against a real server: OpenTofu
// with a generic provider for REST, and a Kubernetes API server, which converts objects through
// the server's webhook. It is a module of its own, so that what the tools depend on is none of
// the product's; each tool that is a program has a module in a folder here.
package gitops
