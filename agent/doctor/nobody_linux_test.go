package doctor_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	"github.com/muster-fleet/muster/packaging/host/doctor"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/testing/kit/require"
	"github.com/muster-fleet/muster/watcher/probe"
)

// What a user may not read is neither damaged nor missing: to enrol again would harm a host that works.
func TestFilesThatThisUserMayNotRead(t *testing.T) {
	require.Root(t)
	h := installed(t)
	h.runs(t, probe.Health{State: probe.Healthy})
	h.watches(t, h.home(), "data/muster-agent-1.1.0-abc123")
	write(t, h.path(h.home()+"/"+layout.DigestsFile), "")
	for name, mode := range map[string]os.FileMode{h.Top: 0o755, h.path(h.home() + "/" + layout.DigestsFile): 0o600, h.path(h.home() + "/" + layout.RunDir): 0o700} {
		if err := os.MkdirAll(h.path(h.home()+"/"+layout.RunDir), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = []string{"TEST_TOP_AS_NOBODY=" + h.Top}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var found []doctor.Finding
	if err := json.Unmarshal(out, &found); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := map[string]string{
		"version":  h.path(h.home()),
		"space":    h.path(h.home()),
		"agent":    probe.SocketPath(h.Top),
		"upgrade":  h.path(layout.MarkerFile),
		"identity": h.path(layout.IdentityFile),
	}
	for _, f := range found {
		file, ok := want[f.Check]
		if !ok {
			continue
		}
		delete(want, f.Check)
		if w := (doctor.Finding{Check: f.Check, Level: doctor.Warning, Found: "this user may not read " + file, Mend: "run this with sudo"}); f != w {
			t.Errorf("found %+v, want %+v", f, w)
		}
	}
	if len(want) > 0 {
		t.Errorf("there is no finding of %v in %+v", want, found)
	}
}
