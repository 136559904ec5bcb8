package setup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/windows/registry"
	"golang.org/x/sys/windows/svc/mgr"

	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/testing/kit/require"
)

func TestOnlyFoldersOfProgramsAreSafe(t *testing.T) {
	for folder, safe := range map[string]bool{
		layout.DefaultTop: true, `c:\program files\other\muster`: true,
		`C:\Program Files`: false, `C:\Program Files Too\muster`: false, `C:\opt\muster`: false, `C:\Program Files\..\muster`: false,
	} {
		err := checkOwners("--top", folder)
		if (err == nil) != safe || err != nil && !strings.Contains(err.Error(), "--top") {
			t.Errorf("%s: %v", folder, err)
		}
	}
}

func TestServicesAreRegisteredAndRemoved(t *testing.T) {
	m, err := mgr.Connect()
	require.Made(t, err, "run it as an administrator")
	defer m.Disconnect()
	r := layout.Roots{Top: filepath.Join(t.TempDir(), "it has spaces")}
	must(t, os.MkdirAll(r.Top, 0o700))
	for _, link := range []string{layout.AgentLink, layout.WatcherLink} {
		must(t, os.WriteFile(r.Link(link), nil, 0o700))
	}
	name, err := Manager{}.Install(r)
	must(t, err)
	for service, command := range map[string]string{
		name:              `"` + r.Link(layout.AgentLink) + `" run --top "` + r.Top + `"`,
		name + "-watcher": `"` + r.Link(layout.WatcherLink) + `" --top "` + r.Top + `"`,
	} {
		key, err := registry.OpenKey(registry.LOCAL_MACHINE, `SYSTEM\CurrentControlSet\Services\`+service, registry.QUERY_VALUE)
		must(t, err)
		if got, _, err := key.GetStringValue("ImagePath"); err != nil || got != command {
			t.Errorf("%s runs %s (%v), want %s", service, got, err, command)
		}
		if start, _, err := key.GetIntegerValue("Start"); err != nil || start != mgr.StartAutomatic {
			t.Errorf("%s starts by %d, %v", service, start, err)
		}
		must(t, key.Close())
	}
	must(t, Manager{}.Remove(name, r))
	if s, err := m.OpenService(name); err == nil {
		t.Error("the service is still there")
		must(t, s.Close())
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
