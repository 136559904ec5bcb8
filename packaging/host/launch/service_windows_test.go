package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/mgr"

	"github.com/muster-fleet/muster/testing/kit/require"
)

// TestMain is also the services and the program that the tests start.
func TestMain(m *testing.M) {
	var do func(context.Context) error
	switch os.Args[1] {
	case "started":
		fmt.Println("started")
		return
	case "stops":
		do = func(ctx context.Context) error { <-ctx.Done(); return nil }
	case "fails":
		do = func(context.Context) error { return errors.New("it fails") }
	case "ends":
		do = func(context.Context) error { return nil }
	default:
		os.Exit(m.Run())
	}
	if err := svc.Run("", handler{context.Background(), do}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func TestAServiceStopsEndsAndFails(t *testing.T) {
	m, err := mgr.Connect()
	require.Made(t, err, "run it as an administrator")
	defer m.Disconnect()
	self, err := os.Executable()
	must(t, err)
	for kind, failed := range map[string]bool{"stops": false, "ends": false, "fails": true} {
		t.Run(kind, func(t *testing.T) {
			s, err := m.CreateService("muster-test-"+kind, self, mgr.Config{StartType: mgr.StartManual}, kind)
			must(t, err)
			defer func() {
				must(t, s.Delete())
				must(t, s.Close())
			}()
			must(t, s.Start())
			if kind == "stops" {
				reaches(t, s, svc.Running)
				_, err := s.Control(svc.Stop)
				must(t, err)
			}
			// The manager sets an exit code if the process has ended without a word.
			if now := reaches(t, s, svc.Stopped); (now.Win32ExitCode != 0) != failed {
				t.Errorf("the exit code is %d, and it has failed: %v", now.Win32ExitCode, failed)
			}
		})
	}
}

// reaches waits until the service is in a state.
func reaches(t *testing.T, s *mgr.Service, state svc.State) svc.Status {
	t.Helper()
	var now svc.Status
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		var err error
		if now, err = s.Query(); err == nil && now.State == state {
			return now
		}
	}
	t.Fatalf("the service is in state %d, want %d", now.State, state)
	return now
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
