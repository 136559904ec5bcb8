package setup

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"path/filepath"

	"github.com/kardianos/service"

	"github.com/muster-fleet/muster/agent/daemon"
	"github.com/muster-fleet/muster/watcher/marker"
)

// Manager is the host's own service manager.
type Manager struct{}

var _ Services = Manager{}

// agentUnit differs from the library's in three points. KillMode=process: the
// watcher is a child of the agent and must outlive it. RestartSec: a crash loop
// has to show within seconds. StartLimitIntervalSec=0: systemd must not give up
// on an agent that the watcher is about to replace.
const agentUnit = `[Unit]
Description={{Description}}
After=network-online.target
Wants=network-online.target
StartLimitIntervalSec=0

[Service]
ExecStart={{Path | cmdEscape}}{{range Arguments}} {{. | cmd}}{{end}}
Restart=always
RestartSec=3
KillMode=process
TimeoutStopSec=20

[Install]
WantedBy=multi-user.target
`

// watcherUnit watches at boot: a new version that cannot even start does not
// start its watcher either. Without a marker it is not run.
const watcherUnit = `[Unit]
Description={{Description}}
ConditionPathExists={{WorkingDirectory | cmdEscape}}/` + marker.MarkerFile + `

[Service]
ExecStart={{Path | cmdEscape}}{{range Arguments}} {{. | cmd}}{{end}}
Restart=on-failure
RestartSec=3

[Install]
WantedBy=multi-user.target
`

const systemd = "linux-systemd"

// ServiceName is the agent's name with the service manager. Two installations on
// one host have two names.
func ServiceName(top string) string {
	if top == daemon.DefaultTop {
		return "muster-agent"
	}
	sum := sha256.Sum256([]byte(top))
	return "muster-agent-" + hex.EncodeToString(sum[:3])
}

func watcherServiceName(agent string) string { return agent + "-watcher" }

func agentService(name, top string) (service.Service, error) {
	return service.New(nothing{}, &service.Config{
		Name: name, DisplayName: "Muster agent", Description: "Muster agent in " + top,
		Executable: filepath.Join(top, marker.AgentLink), Arguments: []string{"run", "--top", top},
		Option: service.KeyValue{"SystemdScript": agentUnit},
	})
}

func watcherService(name, top string) (service.Service, error) {
	return service.New(nothing{}, &service.Config{
		Name: watcherServiceName(name), DisplayName: "Muster upgrade watcher", Description: "Muster upgrade watcher in " + top,
		Executable: filepath.Join(top, marker.WatcherLink), Arguments: []string{"--top", top}, WorkingDirectory: top,
		Option: service.KeyValue{"SystemdScript": watcherUnit},
	})
}

// nothing stands in for the program, which the service manager starts from its
// link.
type nothing struct{}

func (nothing) Start(service.Service) error { return nil }
func (nothing) Stop(service.Service) error  { return nil }

// Install registers the agent, and on systemd the watcher for the time after a
// power cut.
func (Manager) Install(top string) (string, error) {
	name := ServiceName(top)
	a, err := agentService(name, top)
	if err != nil {
		return "", err
	}
	if err := a.Install(); err != nil {
		return "", err
	}
	if service.Platform() != systemd {
		return name, nil
	}
	w, err := watcherService(name, top)
	if err == nil {
		err = w.Install()
	}
	if err != nil {
		return "", errors.Join(err, a.Uninstall())
	}
	return name, nil
}

// Start starts the agent's service.
func (Manager) Start(name, top string) error {
	a, err := agentService(name, top)
	if err != nil {
		return err
	}
	return a.Start()
}

// Remove stops and removes both services.
func (Manager) Remove(name, top string) error {
	a, err := agentService(name, top)
	if err != nil {
		return err
	}
	errs := []error{remove(a)}
	if service.Platform() == systemd {
		w, err := watcherService(name, top)
		if err != nil {
			return err
		}
		errs = append(errs, remove(w))
	}
	return errors.Join(errs...)
}

func remove(s service.Service) error {
	status, err := s.Status()
	if errors.Is(err, service.ErrNotInstalled) {
		return nil
	}
	if status == service.StatusRunning {
		if err := s.Stop(); err != nil {
			return err
		}
	}
	return s.Uninstall()
}
