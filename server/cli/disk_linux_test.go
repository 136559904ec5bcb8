package cli_test

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/server/wire/agentapi/capin"
	"github.com/muster-fleet/muster/testing/kit/fakepkg"
	"github.com/muster-fleet/muster/testing/kit/require"
)

// smallDisk mounts a file system of a size until the test ends.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	require.Root(t)
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=0700,size="+size); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill appends to a file until the disk has no byte left.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
}

// statusFor returns the status that agents are told.
func statusFor(t *testing.T, s started) string {
	t.Helper()
	config, err := capin.TLSConfig(s.CAPin, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}, Timeout: apptest.WaitLimit}
	resp, err := c.Get(s.AgentURL + agentapi.PathStatus)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var status agentapi.Status
	if err := json.NewDecoder(resp.Body).Decode(&status); err != nil {
		t.Fatal(err)
	}
	return status.Status + " " + status.Reason
}

func TestServerStartsWithAFullDiskAndPackagesCanBeWithdrawn(t *testing.T) {
	o := newOperator(t)
	disk := smallDisk(t, "64m")
	data, other := filepath.Join(disk, "data"), filepath.Join(disk, "other")
	first, stop := o.serve(data)
	t.Setenv("MUSTER_URL", first.AdminURL)
	key, err := os.ReadFile(first.AdminKeyFile)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("MUSTER_API_KEY", strings.TrimSpace(string(key)))
	t.Setenv("MUSTER_CA_PIN", first.CAPin)
	dir := filepath.Join(t.TempDir(), "keys")
	o.run("package", "keys", "init", "--dir", dir, "--no-password")
	noise := make([]byte, 2<<20) // as large as a small agent
	_, _ = rand.Read(noise)
	pkg := fakepkg.Describe("1.1.0")
	archive := fakepkg.Write(t, t.TempDir(), archiveOf("1.1.0"), append(fakepkg.Sound(t, pkg), fakepkg.Entry{Name: fakepkg.Top(pkg) + "/" + pkg.VersionedHome + "/noise", Body: string(noise)}))
	o.run("package", "push", archive, "--targets-key", filepath.Join(dir, "targets-1.key"))
	stop()
	// Without the reserve, as after an upgrade from an older version, the error says why.
	reserve := filepath.Join(data, "reserve")
	kept, err := os.ReadFile(reserve)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(reserve); err != nil {
		t.Fatal(err)
	}
	fill(t, other)
	o.fails(1, []string{"server", "--data", data, "--agents-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}, "the disk is full: free some space")
	if err := os.Truncate(other, 1<<20); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(reserve, kept, 0o600); err != nil {
		t.Fatal(err)
	}
	fill(t, other)

	second, stop := o.serve(data)
	t.Setenv("MUSTER_URL", second.AdminURL)
	if second.CAPin != first.CAPin || second.AdminKeyFile != "" {
		t.Errorf("the server that started with a full disk says %+v", second)
	}
	// It has started with the reserve, which something else fills as well.
	fill(t, other)
	o.fails(1, []string{"keys", "create"}, "the disk is full")
	apptest.Eventually(t, "agents to be told", func() string {
		if got := statusFor(t, second); !strings.HasPrefix(got, "DEGRADED ") || !strings.Contains(got, "the disk is full") {
			return got
		}
		return ""
	})
	o.run("package", "withdraw", filepath.Base(archive))
	apptest.Eventually(t, "the server to write again", func() string {
		if got := statusFor(t, second); got != "HEALTHY " {
			return got
		}
		return ""
	})
	o.run("keys", "create")
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	stop()
	if info, err := os.Stat(reserve); err != nil || info.Size() < 1<<20 {
		t.Errorf("the reserve is %v, %v", info, err)
	}
}
