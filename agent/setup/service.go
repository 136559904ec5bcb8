package setup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/kardianos/service"

	"github.com/muster-fleet/muster/agent/daemon"
	"github.com/muster-fleet/muster/agent/services"
	"github.com/muster-fleet/muster/packaging/host/layout"
)

// Manager is the host's service manager.
type Manager struct{}

var _ Services = Manager{}

// The library's names of service managers.
const (
	systemd = "linux-systemd"
	launchd = "darwin-launchd"
	upstart = "linux-upstart"
	openRC  = "linux-openrc"
	sysV    = "unix-systemv"
	scm     = "windows-service" // the service control manager
)

// systemTop is the top folder of an installation in the folders of the system.
var systemTop = layout.System{LocalStateDir: DefaultLocalStateDir}.Roots().Top

// ServiceName returns the name of the agent's service, which differs for each
// installation on a host.
func ServiceName(top string) string {
	if top == daemon.DefaultTop || top == systemTop {
		return "muster-agent"
	}
	sum := sha256.Sum256([]byte(top))
	return "muster-agent-" + hex.EncodeToString(sum[:3])
}

func agentService(name string, r layout.Roots) (service.Service, error) {
	return service.New(nothing{}, &service.Config{
		Name: name, DisplayName: "Muster agent", Description: "Muster agent in " + r.Top,
		Executable: r.Link(layout.AgentLink), Arguments: []string{"run", "--top", r.Top},
		Option: withRecovery(service.KeyValue{
			"SystemdScript": services.AgentSystemd(r), "LaunchdConfig": services.AgentLaunchd(name, r),
			"OpenRCScript": services.AgentOpenRC(r), "SysvScript": services.AgentSysV(name, r),
		}),
	})
}

func watcherService(agent string, r layout.Roots) (service.Service, error) {
	name := services.WatcherName(agent)
	return service.New(nothing{}, &service.Config{
		Name: name, DisplayName: "Muster upgrade watcher", Description: "Muster upgrade watcher in " + r.Top,
		Executable: r.Link(layout.WatcherLink), Arguments: []string{"--top", r.Top},
		Option: withRecovery(service.KeyValue{
			"SystemdScript": services.WatcherSystemd(r), "LaunchdConfig": services.WatcherLaunchd(name, r),
			"UpstartScript": services.WatcherUpstart(r), "OpenRCScript": services.WatcherOpenRC(r),
			"SysvScript": services.WatcherSysV(name, r),
		}),
	})
}

// withRecovery adds what Windows does when a service's process ends and the service was not
// stopped: it starts the service again, as often as that happens. An agent that another version
// replaces ends so too. The delay is that of the units of systemd.
func withRecovery(o service.KeyValue) service.KeyValue {
	o["OnFailure"] = "restart"
	o["OnFailureDelayDuration"] = "3s"
	o["OnFailureResetPeriod"] = 60 // seconds; it makes no difference to a single action
	return o
}

// watchesAtBoot reports whether the watcher is installed as a service on a platform. That
// needs a service manager which runs a program at boot and lets it exit: without a marker
// the watcher exits at once.
//
// Other managers on Unix (OpenWrt's procd, BusyBox's rcS, those of the BSDs and Solaris)
// have no tested definition. There the agent starts its watcher as a process, and a new
// version that does not start after a power cut is not rolled back.
func watchesAtBoot(platform string) bool {
	switch platform {
	case systemd, launchd, upstart, openRC, sysV, scm:
		return true
	}
	return false
}

// nothing satisfies the library, which needs a program to install; the service manager
// starts the link.
type nothing struct{}

func (nothing) Start(service.Service) error { return nil }
func (nothing) Stop(service.Service) error  { return nil }

// Install registers the agent's service, and the watcher's, which runs after a power cut.
func (Manager) Install(r layout.Roots) (string, error) {
	name := ServiceName(r.Top)
	a, err := agentService(name, r)
	if err != nil {
		return "", err
	}
	if err := register(a); err != nil {
		return "", err
	}
	if watchesAtBoot(service.Platform()) {
		w, err := watcherService(name, r)
		if err == nil {
			err = register(w)
		}
		if err != nil {
			return "", errors.Join(err, a.Uninstall())
		}
	}
	if err := startsAtBoot(name); err != nil {
		return "", errors.Join(err, Manager{}.Remove(name, r))
	}
	return name, syncUnits()
}

// bootTimeout bounds a program that sorts the scripts of System V init, which takes a second.
const bootTimeout = time.Minute

// startsAtBoot makes System V init start the scripts of both services. The library only makes
// links, which an init that starts scripts in the order of their dependencies does not read.
func startsAtBoot(name string) error {
	if service.Platform() != sysV {
		return nil
	}
	for _, script := range []string{name, services.WatcherName(name)} {
		var err error
		if _, lerr := exec.LookPath("update-rc.d"); lerr == nil {
			err = sortScripts("update-rc.d", script, "defaults")
		} else if _, lerr := exec.LookPath("chkconfig"); lerr == nil {
			err = sortScripts("chkconfig", "--add", script)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func sortScripts(program string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), bootTimeout)
	defer cancel()
	c := exec.CommandContext(ctx, program, args...)
	c.WaitDelay = time.Second
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// Check refuses a user who may not register a service, folders that no service definition can hold,
// and a system that keeps its services in a read-only folder.
func (Manager) Check(r layout.Roots) error {
	if runtime.GOOS != "windows" && !runsAsRoot() {
		return errors.New("a service needs root's rights: run this as root, or install with --top FOLDER --no-service in a folder of your own")
	}
	if err := CheckFolders(r); err != nil {
		return err
	}
	return checkDefinitions(definitionFolders[service.Platform()])
}

// CheckFolders refuses folders that no service definition can hold.
func CheckFolders(r layout.Roots) error {
	err := services.CheckFolder(topFlag(r), r.Top)
	if err == nil && r.Links != "" {
		err = services.CheckFolder("--sysconfdir", r.Links)
	}
	return err
}

// definitionFolders are where the library writes definitions of services, by service manager.
var definitionFolders = map[string]string{
	systemd: "/etc/systemd/system", launchd: "/Library/LaunchDaemons", upstart: "/etc/init", openRC: "/etc/init.d", sysV: "/etc/init.d",
}

// checkDefinitions returns an error if no definition can be written to a folder. It writes a file,
// since permissions do not say whether a file system is read-only.
func checkDefinitions(folder string) error {
	if folder == "" {
		return nil // the library's error is all that can be said
	}
	f, err := os.CreateTemp(folder, ".muster-*")
	if err == nil {
		return errors.Join(f.Close(), os.Remove(f.Name()))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no %s for the definition of a service: install with --no-service, and let what starts programs here run `muster-agent run`", folder)
	}
	return fmt.Errorf("the definition of a service cannot be written (%w): if the system's configuration generates %s, put into it the units that `muster-agent units` prints, and install with --service %s; or install with --no-service and start the agent yourself", err, folder, ServiceName(daemon.DefaultTop))
}

// Declared is a service that something else registers, such as the configuration of a system
// whose units are generated.
type Declared struct{ Name string }

var _ Services = Declared{}

// Check refuses a name that is none.
func (d Declared) Check(r layout.Roots) error {
	if d.Name == "" || strings.ContainsAny(d.Name, "/ \t\n") || strings.HasSuffix(d.Name, ".service") {
		return fmt.Errorf("--service is %q, want the name of a service without .service, such as %s", d.Name, ServiceName(r.Top))
	}
	return CheckFolders(r)
}

// Install returns the name.
func (d Declared) Install(layout.Roots) (string, error) { return d.Name, nil }

// Start does nothing: the service may not be registered yet.
func (Declared) Start(string, layout.Roots) error { return nil }

// Remove does nothing.
func (Declared) Remove(string, layout.Roots) error { return nil }

// topFlag returns the flag that determines the top folder.
func topFlag(r layout.Roots) string {
	if r.Links == "" {
		return "--top"
	}
	return "--localstatedir"
}

// register installs a service and removes its definition if that fails, since the library
// writes the definition before it calls the service manager. It does not remove a
// definition that existed before.
func register(s service.Service) error {
	err := s.Install()
	if err == nil || strings.Contains(err.Error(), "already exists") {
		return err
	}
	return errors.Join(err, s.Uninstall())
}

// systemdFolders hold units, and the links that start them at boot.
var systemdFolders = []string{"/etc/systemd/system", "/etc/systemd/system/multi-user.target.wants"}

// syncUnits syncs the units, which the library does not: a power cut could leave empty
// units and, at the next boot, no agent.
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

// syncFiles syncs files of a folder, and then the folder.
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
func (Manager) Start(name string, r layout.Roots) error {
	a, err := agentService(name, r)
	if err != nil {
		return err
	}
	return a.Start()
}

// Remove stops and removes both services.
func (Manager) Remove(name string, r layout.Roots) error {
	a, err := agentService(name, r)
	if err != nil {
		return err
	}
	errs := []error{remove(a, name)}
	if watchesAtBoot(service.Platform()) {
		w, err := watcherService(name, r)
		if err != nil {
			return err
		}
		errs = append(errs, remove(w, services.WatcherName(name)))
	}
	return errors.Join(errs...)
}

func remove(s service.Service, name string) error {
	switch service.Platform() {
	case systemd:
		return removeUnit(s, name)
	case openRC, sysV:
		return removeScript(s, name)
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

// removeScript does not ask for the status first: to the library, the status of a script that is
// stopped, or whose program has ended, is unknown. It removes the script even if that stops
// nothing, as after a failed start, and the links that start it with the system: the library leaves
// those of System V init, and of OpenRC those in another runlevel than the present one.
func removeScript(s service.Service, name string) error {
	if _, err := os.Stat(filepath.Join(definitionFolders[sysV], name)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{s.Stop(), s.Uninstall()}
	for _, pattern := range []string{"/etc/rc?.d/[SK][0-9][0-9]" + name, "/etc/runlevels/*/" + name} {
		links, err := filepath.Glob(pattern)
		errs = append(errs, err)
		for _, link := range links {
			errs = append(errs, os.Remove(link))
		}
	}
	if _, err := exec.LookPath("update-rc.d"); err == nil && service.Platform() == sysV {
		errs = append(errs, sortScripts("update-rc.d", "-f", name, "remove"))
	}
	return errors.Join(errs...)
}

// removeUnit does not ask for the status first: to the library, a unit that is
// just being stopped is not installed.
func removeUnit(s service.Service, name string) error {
	if _, err := os.Stat(filepath.Join(systemdFolders[0], name+".service")); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if f, err := os.CreateTemp(systemdFolders[0], ".muster-*"); err != nil {
		return fmt.Errorf("the unit %s.service cannot be removed (%w): remove it from the configuration that generates it, and uninstall again", name, err)
	} else if err := errors.Join(f.Close(), os.Remove(f.Name())); err != nil {
		return err
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
