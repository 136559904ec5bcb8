package host

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/mgr"
)

// serviceStop is above the time that package launch gives a program to stop.
const serviceStop = 20 * time.Second

func serviceManager(name string) (Manager, error) { return controlManager{name}, nil }

// controlManager is the service control manager of Windows. It never kills a service that does not
// stop, and the library waits for such a service without a bound. A version that hangs could then
// not be rolled back.
type controlManager struct{ name string }

// Start starts the service, unless the manager has done so after a failure.
func (c controlManager) Start() error { return c.with(startService) }

// Restart stops the service, kills its process if it does not stop, and starts it. To the manager
// a killed process has failed, so that it may start the service first. That is the same version,
// since the pointer has moved before.
func (c controlManager) Restart() error {
	return c.with(func(s *mgr.Service) error {
		if err := stopService(s); err != nil {
			return err
		}
		return startService(s)
	})
}

func (c controlManager) with(do func(*mgr.Service) error) error {
	m, err := mgr.Connect()
	if err != nil {
		return fmt.Errorf("connect to the service control manager: %w", err)
	}
	defer m.Disconnect() //nolint:errcheck // the handle ends with the process at the latest
	s, err := m.OpenService(c.name)
	if err != nil {
		return err
	}
	defer s.Close() //nolint:errcheck // likewise
	return do(s)
}

func startService(s *mgr.Service) error {
	if err := s.Start(); err != nil && !errors.Is(err, windows.ERROR_SERVICE_ALREADY_RUNNING) {
		return err
	}
	return nil
}

func stopService(s *mgr.Service) error {
	_, err := s.Control(svc.Stop)
	if errors.Is(err, windows.ERROR_SERVICE_NOT_ACTIVE) {
		return nil
	}
	// Another error is that of a service which does not answer, or starts or stops already.
	pid := uint32(0)
	stopped := func() bool {
		now, qerr := s.Query()
		if qerr != nil {
			return false
		}
		gone := now.State == svc.Stopped || pid != 0 && now.ProcessId != pid
		pid = now.ProcessId
		return gone
	}
	if waitFor(serviceStop, stopped) {
		return nil
	}
	if pid == 0 {
		return fmt.Errorf("does not stop, and has no process to kill: %w", err)
	}
	process, kerr := os.FindProcess(int(pid))
	if kerr == nil {
		kerr = errors.Join(process.Kill(), process.Release())
	}
	if !waitFor(killTimeout, stopped) {
		return errors.Join(fmt.Errorf("does not stop, not even when its process %d is killed", pid), err, kerr)
	}
	return nil
}
