package app

import (
	"crypto/tls"

	"github.com/muster-fleet/muster/server/agents/limit"
	"github.com/muster-fleet/muster/server/node/authority"
)

// forAgents returns the TLS configuration of agents' connections. They must use it and not
// a copy, since the keys of its session tickets change.
func (c *certificates) forAgents() (*tls.Config, error) {
	config := c.tls.Clone()
	// TLS 1.2 needs one more round trip, and resumes sessions differently.
	config.MinVersion = tls.VersionTLS13
	// HTTP/1.1 first: its connections can be parked without a goroutine. Clients with
	// only HTTP/2 are served too.
	config.NextProtos = []string{"http/1.1", "h2"}
	// One record and one system call for each answer, not two: an agent cannot use a
	// part of an answer.
	config.DynamicRecordSizingDisabled = true
	return config, c.tickets.Set(config)
}

// newAdmission derives from the machine and the configuration how many agents and requests
// the server handles at once.
func newAdmission(o Options, agentTLS *tls.Config) (*limit.Admission, error) {
	cert, err := authority.Certificate(agentTLS)
	if err != nil {
		return nil, err
	}
	if authority.IsRSA(cert) {
		o.Log.Warn("the server's certificate has an RSA key: each connection of an agent costs three times the processor time of ECDSA P-256", "certificate", o.Config.TLS.Certificate)
	}
	machine := limit.ThisMachine()
	if o.Config.Limits.HandshakesPerSecond == 0 {
		machine.Handshake = limit.MeasureHandshake(agentTLS)
	}
	limits, err := limit.Derive(machine, o.Config.Limits)
	if err != nil {
		return nil, err
	}
	o.Log.Info("limits", "agents", limits.Agents, "handshakes", limits.Handshakes, "handshakes_per_second", limits.HandshakesPerSecond,
		"checkins", limits.Checkins, "reports", limits.Reports, "enrollments", limits.Enrollments, "downloads", limits.Downloads,
		"waiting", limits.Waiting, "body_bytes", limits.BodyBytes, "memory_bytes", limits.MemoryBytes)
	return limit.NewAdmission(limits), nil
}
