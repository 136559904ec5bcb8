package setup

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/kardianos/service"

	"github.com/muster-fleet/muster/agent/daemon"
	"github.com/muster-fleet/muster/agent/services"
	"github.com/muster-fleet/muster/packaging/layout"
)

// Manager is the host's own service manager.
type Manager struct{}

var _ Services = Manager{}

// Service managers, as the library names them.
const (
	systemd = "linux-systemd"
	launchd = "darwin-launchd"
	upstart = "linux-upstart"
	openRC  = "linux-openrc"
	sysV    = "unix-systemv"
)

// ServiceName is the agent's name with the service manager. Two installations on
// one host have two names.
func ServiceName(top string) string {
	if top == daemon.DefaultTop {
		return "muster-agent"
	}
	sum := sha256.Sum256([]byte(top))
	return "muster-agent-" + hex.EncodeToString(sum[:3])
}

func agentService(name, top string) (service.Service, error) {
	return service.New(nothing{}, &service.Config{
		Name: name, DisplayName: "Muster agent", Description: "Muster agent in " + top,
		Executable: layout.Path(top, layout.AgentLink), Arguments: []string{"run", "--top", top},
		Option: service.KeyValue{"SystemdScript": services.AgentSystemd(top)},
	})
}

func watcherService(agent, top string) (service.Service, error) {
	name := services.WatcherName(agent)
	return service.New(nothing{}, &service.Config{
		Name: name, DisplayName: "Muster upgrade watcher", Description: "Muster upgrade watcher in " + top,
		Executable: layout.Path(top, layout.WatcherLink), Arguments: []string{"--top", top},
		Option: service.KeyValue{
			"SystemdScript": services.WatcherSystemd(top), "LaunchdConfig": services.WatcherLaunchd(name, top),
			"UpstartScript": services.WatcherUpstart(top), "OpenRCScript": services.WatcherOpenRC(top),
		},
	})
}

// watchesAtBoot says whether the watcher is a service beside the agent on a
// platform. It needs a manager that runs a program once at boot and lets it end:
// without a marker the watcher leaves at once, on every boot but one.
//
// Not so on Windows. Its service control manager takes a program that does not
// answer it for one that hangs, and ends it after 30 s: the watcher would have to
// learn to, as the agent has (cmd_run.go). Before that comes what keeps upgrades
// from happening there at all: a process cannot be replaced in place, so that
// every upgrade fails at its last step and is undone, and the manager starts
// nothing through a link without .exe.
//
// Those left out of Unix (OpenWrt's procd, BusyBox's rcS, the BSDs' and Solaris'
// own) would need a definition each that nobody has tried. There the agent starts
// its watcher as a process, and a new version that cannot start after a power cut
// stays.
func watchesAtBoot(platform string) bool {
	switch platform {
	case systemd, launchd, upstart, openRC, sysV:
		return true
	}
	return false
}

// nothing stands in for the program, which the service manager starts from its
// link.
type nothing struct{}

func (nothing) Start(service.Service) error { return nil }
func (nothing) Stop(service.Service) error  { return nil }

// Install registers the agent, and the watcher for the time after a power cut.
func (Manager) Install(top string) (string, error) {
	if err := services.CheckTop(top); err != nil {
		return "", err
	}
	name := ServiceName(top)
	a, err := agentService(name, top)
	if err != nil {
		return "", err
	}
	if err := register(a); err != nil {
		return "", err
	}
	if watchesAtBoot(service.Platform()) {
		w, err := watcherService(name, top)
		if err == nil {
			err = register(w)
		}
		if err != nil {
			return "", errors.Join(err, a.Uninstall())
		}
	}
	return name, syncUnits()
}

// register leaves nothing behind when it fails: the library writes the
// definition first and tells the service manager of it then. A definition that
// was there before is somebody else's.
func register(s service.Service) error {
	err := s.Install()
	if err == nil || strings.Contains(err.Error(), "already exists") {
		return err
	}
	return errors.Join(err, s.Uninstall())
}

// systemdFolders hold units, and the links that start them at boot.
var systemdFolders = []string{"/etc/systemd/system", "/etc/systemd/system/multi-user.target.wants"}

// syncUnits writes the units out: the library leaves that for later, and a power
// cut before would leave empty units and, at the next boot, no agent.
func syncUnits() error {
	if service.Platform() != systemd {
		return nil
	}
	for _, dir := range systemdFolders {
		if err := syncFiles(dir, "muster-agent*.service"); err != nil {
			return fmt.Errorf("write the service's units out: %w", err)
		}
	}
	return nil
}

// syncFiles writes files of a folder to the disk, and then the folder.
func syncFiles(dir, pattern string) error {
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		return err
	}
	for _, name := range append(files, dir) {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		err = f.Sync()
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return err
		}
	}
	return nil
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
	errs := []error{remove(a, name)}
	if watchesAtBoot(service.Platform()) {
		w, err := watcherService(name, top)
		if err != nil {
			return err
		}
		errs = append(errs, remove(w, services.WatcherName(name)))
	}
	return errors.Join(errs...)
}

func remove(s service.Service, name string) error {
	if service.Platform() == systemd {
		return removeUnit(s, name)
	}
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

// removeUnit does not ask for the status first: to the library, a unit that is
// just being stopped is not installed.
func removeUnit(s service.Service, name string) error {
	if _, err := os.Stat(filepath.Join(systemdFolders[0], name+".service")); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := s.Stop(); err != nil {
		// A unit that systemd could not read, it cannot stop either.
		if running, rerr := services.Running(name); running || rerr != nil {
			return errors.Join(err, rerr)
		}
	}
	if err := s.Uninstall(); err != nil {
		return err
	}
	return services.Forget(name)
}
