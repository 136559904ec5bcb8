package control_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/node/control"
	"github.com/muster-fleet/muster/testing/kit/require"
)

type operations struct {
	pin     string
	upgrade *fleet.ServerUpgrade
}

func (c *operations) CreateAdminKey(_ context.Context, name string) (control.AdminKey, error) {
	if name == "" {
		return control.AdminKey{}, errors.New("name: is missing")
	}
	return control.AdminKey{ID: "1", Name: name, APIKey: "secret"}, nil
}

func (c *operations) CAPin(_ context.Context, forget bool) (string, error) {
	pin := c.pin
	if forget {
		c.pin = ""
	}
	return pin, nil
}

func (c *operations) BeginUpgrade(_ context.Context, to string, withoutBackup bool) (*fleet.ServerUpgrade, error) {
	if c.upgrade != nil {
		return nil, errors.New("an upgrade is under way")
	}
	c.upgrade = &fleet.ServerUpgrade{To: to, WithoutBackup: withoutBackup, Phase: fleet.ServerCheck}
	return c.upgrade, nil
}

func (c *operations) UndoUpgrade(context.Context) (*fleet.ServerUpgrade, error) {
	c.upgrade.Phase = fleet.ServerUndo
	return c.upgrade, nil
}

func (c *operations) Upgrade(context.Context) (*fleet.ServerUpgrade, error) { return c.upgrade, nil }

func serve(t *testing.T, folder string) (stop func()) {
	t.Helper()
	stop, err := control.Serve(folder, &operations{pin: "sha256"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return stop
}

func TestCommandsOverSocket(t *testing.T) {
	require.System(t, "linux", "darwin")
	for name, folder := range map[string]string{
		"short path":                         t.TempDir(),
		"path longer than a socket's may be": filepath.Join(t.TempDir(), strings.Repeat("a", 120)),
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // an operator may make the folder readable
				t.Fatal(err)
			}
			if _, err := control.Dial(t.Context(), folder); !errors.Is(err, control.ErrNoServer) {
				t.Fatalf("before the server: %v", err)
			}
			stop := serve(t, folder)
			info, err := os.Lstat(filepath.Join(folder, "control.sock"))
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("the socket's mode is %v, %v", info, err)
			}
			c, err := control.Dial(t.Context(), folder)
			if err != nil {
				t.Fatal(err)
			}
			if k, err := c.CreateAdminKey(t.Context(), "spare"); err != nil || k != (control.AdminKey{ID: "1", Name: "spare", APIKey: "secret"}) {
				t.Errorf("the key is %+v, %v", k, err)
			}
			if _, err := c.CreateAdminKey(t.Context(), ""); err == nil || err.Error() != "name: is missing" {
				t.Errorf("a key without a name: %v", err)
			}
			for _, want := range []string{"sha256", ""} {
				if pin, err := c.CAPin(t.Context(), true); err != nil || pin != want {
					t.Errorf("the pin is %q, want %q: %v", pin, want, err)
				}
			}
			if u, err := c.Upgrade(t.Context()); err != nil || u != nil {
				t.Errorf("before an upgrade there is %+v, %v", u, err)
			}
			if u, err := c.BeginUpgrade(t.Context(), "1.1.0", true); err != nil || u.To != "1.1.0" || !u.WithoutBackup || u.Phase != fleet.ServerCheck {
				t.Errorf("the upgrade begins with %+v, %v", u, err)
			}
			if _, err := c.BeginUpgrade(t.Context(), "1.1.0", false); err == nil || err.Error() != "an upgrade is under way" {
				t.Errorf("a second upgrade: %v", err)
			}
			if u, err := c.UndoUpgrade(t.Context()); err != nil || u.Phase != fleet.ServerUndo {
				t.Errorf("the upgrade that is undone is %+v, %v", u, err)
			}
			stop()
			if left, err := os.ReadDir(folder); err != nil || len(left) != 0 {
				t.Errorf("it left %v, %v", left, err)
			}
			if _, err := control.Dial(t.Context(), folder); !errors.Is(err, control.ErrNoServer) {
				t.Errorf("after the server: %v", err)
			}
		})
	}
}

func TestSocketOfKilledServerIsReplaced(t *testing.T) {
	require.System(t, "linux", "darwin")
	folder := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(folder, "control.sock"))
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := errors.Join(l.Close(), os.Mkdir(filepath.Join(folder, ".control"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if _, err := control.Dial(t.Context(), folder); !errors.Is(err, control.ErrNoServer) {
		t.Fatalf("a socket that nobody serves: %v", err)
	}
	defer serve(t, folder)()
	if _, err := control.Dial(t.Context(), folder); err != nil {
		t.Error(err)
	}
}
