package setup

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/muster-fleet/muster/agent/backoff"
	"github.com/muster-fleet/muster/agent/config"
	"github.com/muster-fleet/muster/agent/gateway"
	"github.com/muster-fleet/muster/agent/host"
	"github.com/muster-fleet/muster/agent/identity"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

// Machine is the machine that an agent starts on, which may be another one than it was enrolled on.
type Machine struct {
	Disk    disk.Disk
	Top     string
	Running manifest.Identity
	Host    host.Info
	Log     *slog.Logger
}

// Follow does what agent.yml says if the agent was enrolled on another machine; see
// config.OnNewMachineID. If it is to enrol again, Follow tries until it has, or ctx ends: with the
// identity that it has, the agent would act as the original.
func (m Machine) Follow(ctx context.Context) error {
	id, err := identity.Load(m.Disk, m.Top)
	if err != nil || m.Host.ID == "" || id.MachineID == m.Host.ID {
		return nil //nolint:nilerror // the daemon says what is wrong with the identity
	}
	if id.MachineID == "" { // the machine had none when it was enrolled
		return m.note(id)
	}
	cfg, _ := config.Effective(m.Disk, m.Top) // the daemon reports the problem
	switch cfg.Host.OnNewMachineID {
	case config.AcceptNewMachine:
		m.Log.Info("this machine has another id than the one it was enrolled on; it is taken for the same", "enrolled_on", id.MachineID, "machine", m.Host.ID)
		return m.note(id)
	case config.EnrollNewMachine:
		return m.enrollUntilDone(ctx, id, cfg)
	case config.ReportNewMachine:
	}
	m.Log.Warn("this machine has another id than the one it was enrolled on: if it is a copy, enrol it again with muster-agent enroll", "enrolled_on", id.MachineID, "machine", m.Host.ID)
	return nil
}

// note stores that the agent is enrolled on this machine. A start on a disk that cannot be written leaves
// that to the next one.
func (m Machine) note(id *identity.Identity) error {
	id.MachineID = m.Host.ID
	err := identity.Save(m.Disk, m.Top, *id)
	if disk.IsUnwritable(err) {
		m.Log.Warn("the machine that the agent is enrolled on is not stored yet", "error", err)
		return nil
	}
	return err
}

func (m Machine) enrollUntilDone(ctx context.Context, id *identity.Identity, cfg config.Config) error {
	var wait backoff.Backoff
	for {
		anew, err := m.enroll(ctx, id, cfg)
		if err == nil {
			m.Log.Info("enrolled this copy of another machine again", "agent", anew.AgentID, "agent_of_the_original", id.AgentID)
			return nil
		}
		next := wait.Next()
		m.Log.Error("this machine is a copy of an enrolled one and could not enrol again", "error", err, "again_in", next.String())
		if err := backoff.Sleep(ctx, next); err != nil {
			return err
		}
	}
}

// enroll enrols the machine at the server of the original, whose authority and publishers it trusts.
func (m Machine) enroll(ctx context.Context, of *identity.Identity, cfg config.Config) (*identity.Identity, error) {
	const key = "host.enrollment_token_file"
	text, err := m.Disk.ReadFile("enroll", cfg.Host.EnrollmentTokenFile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	token := strings.TrimSpace(string(text))
	if !isToken(token) {
		return nil, fmt.Errorf("%s: %s holds no enrollment token: make one with `muster keys create`", key, cfg.Host.EnrollmentTokenFile)
	}
	s := &enrollmentSession{Enrollment: Enrollment{URL: of.ServerURL, Token: token}, id: *of, keepTrust: true}
	if cfg.Server.URL != "" {
		s.id.ServerURL = cfg.Server.URL
	}
	client, err := (gateway.Trust{CAPEM: s.id.CAPEM, Fingerprint: s.id.CAFingerprint, Network: cfg.Network}).HTTPClient(s.id.ServerURL)
	if err != nil {
		return nil, err
	}
	s.server = &gateway.Client{HTTP: client, URL: s.id.ServerURL}
	defer s.close()
	anew, err := s.enroll(ctx, m.Disk, m.Top, m.Running, m.Host)
	if err != nil {
		return nil, err
	}
	return anew, identity.EndEnrollment(m.Disk, m.Top)
}
