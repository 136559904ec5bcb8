package setup

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/kardianos/service"

	"github.com/muster-fleet/muster/agent/doctor"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
)

// Name returns the name of the service manager, such as systemd; empty if none is known here.
func (Manager) Name() string {
	if service.ChosenSystem() == nil {
		return ""
	}
	_, name, _ := strings.Cut(service.Platform(), "-")
	return name
}

// State returns the name of the service of the agent under top, and what the service manager says
// of it.
func (Manager) State(d disk.Disk, top string) (name string, state doctor.ServiceState, err error) {
	text, err := d.ReadFile("service name", layout.Path(top, layout.ServiceFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", doctor.NoService, nil
	}
	if err != nil {
		return "", "", err
	}
	if name = strings.TrimSpace(string(text)); name == "" {
		return "", doctor.NoService, nil
	}
	s, err := service.New(nothing{}, &service.Config{Name: name})
	if err != nil {
		return name, "", err
	}
	status, err := s.Status()
	switch {
	case errors.Is(err, service.ErrNotInstalled):
		return name, doctor.ServiceMissing, nil
	case err != nil:
		return name, "", err
	case status == service.StatusRunning:
		return name, doctor.ServiceRuns, nil
	}
	return name, doctor.ServiceStopped, nil
}
