// Package attack has the tests that attack the running system: malformed requests against
// both listeners, floods with bounded counts, a malicious server or mirror, and a local
// user of a host. They send traffic only to loopback. server/SECURITY.md and
// agent/SECURITY.md name the test of each threat.
package attack
