//go:build linux

package realroot

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/testing/kit/nspawn"
	"github.com/muster-fleet/muster/testing/kit/port"
)

const (
	// The releases of these tests: most tests upgrade from the first to the second.
	first, second = "1.0.0", "1.1.0"

	// waitLimit bounds each wait: a start takes a second, and an upgrade of the server up to the
	// 90 seconds in which it expects its agents back.
	waitLimit = 2 * time.Minute
)

// folder gets the releases.
var folder string

// releases builds both releases once, with the command that makes what is published.
var releases = sync.OnceValue(func() error {
	for _, version := range []string{first, second} {
		c := exec.Command("go", "run", "-tags=nomsgpack", ".", "-version="+version, "-unsigned", "-arch="+runtime.GOARCH, "-other-systems=false", "-out="+folder)
		c.Dir = ".."
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w\n%s", c.Args, err, out)
		}
	}
	return nil
})

func TestMain(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "muster-releases-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(folder)
	os.Exit(code)
}

// machine is a machine with a real systemd. It shares the network of its host.
type machine struct {
	*nspawn.Machine
	t                     *testing.T
	agentsPort, adminPort int
}

func boot(t *testing.T, o nspawn.Options) *machine {
	t.Helper()
	nspawn.Require(t, o.Init)
	if err := releases(); err != nil {
		t.Fatal(err)
	}
	// The server's ports must be in its file before it starts.
	agents, err := port.Free()
	if err != nil {
		t.Fatal(err)
	}
	admin, err := port.Free()
	if err != nil {
		t.Fatal(err)
	}
	o.Share = []string{folder}
	return &machine{nspawn.Start(t, o), t, agents, admin}
}

// run runs a command in a shell of the machine. It returns all that it prints.
func (m *machine) try(command string) (string, error) {
	m.t.Helper()
	out, err := m.Run(m.t.Context(), "sh", "-c", "exec 2>&1; export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8; "+command)
	m.t.Logf("$ %s\n%s", command, out)
	return strings.TrimSpace(out), err
}

func (m *machine) run(command string) string {
	m.t.Helper()
	out, err := m.try(command)
	if err != nil {
		m.t.Fatalf("%s: %v", command, err)
	}
	return out
}

// is compares what a command prints.
func (m *machine) is(command, want string) {
	m.t.Helper()
	if got, _ := m.try(command); got != want {
		m.t.Fatalf("%s: %q, want %q", command, got, want)
	}
}

// refused expects that a command fails, and says why and how to mend it.
func (m *machine) refused(command string, words ...string) {
	m.t.Helper()
	out, err := m.try(command)
	if err == nil {
		m.t.Fatalf("%s succeeded, want it to be refused with %q", command, words)
	}
	for _, w := range words {
		if !strings.Contains(out, w) {
			m.t.Errorf("%s does not say %q", command, w)
		}
	}
}

// deb returns the path of a package for Debian.
func (m *machine) deb(name, version string) string {
	return filepath.Join(folder, version, name+"_"+version+"_"+runtime.GOARCH+".deb")
}

// configure has the server listen on the ports of this test.
func (m *machine) configure() {
	m.t.Helper()
	text := fmt.Sprintf("agents:\n  listen: 127.0.0.1:%d\nadmin:\n  listen: 127.0.0.1:%d\n", m.agentsPort, m.adminPort)
	m.run("printf '" + strings.ReplaceAll(text, "\n", `\n`) + "' >> /etc/muster/server.yml")
}

// eventually waits until f returns nil.
func (m *machine) eventually(what string, f func() error) {
	m.t.Helper()
	deadline := time.Now().Add(waitLimit)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			m.t.Fatalf("timed out waiting until %s: %v", what, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// serves waits until the server of a version runs as its user, and answers that it is ready.
func (m *machine) serves(version string) {
	m.t.Helper()
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // only whether it answers
	}}
	m.eventually("the server "+version+" serves", func() error {
		out, err := m.Run(m.t.Context(), "sh", "-c", `pid=$(systemctl show --property=MainPID --value muster) && readlink /proc/$pid/exe && stat --format=%U /proc/$pid`)
		if want := "/usr/lib/muster/" + version + "/bin/muster\nmuster"; err == nil && strings.TrimSpace(out) != want {
			err = fmt.Errorf("there is %q, want %q", out, want)
		}
		if err != nil {
			return err
		}
		r, err := client.Get(fmt.Sprintf("https://127.0.0.1:%d/readyz", m.adminPort))
		if err != nil {
			return err
		}
		defer r.Body.Close()
		if r.StatusCode != http.StatusOK {
			return fmt.Errorf("/readyz answers %s", r.Status)
		}
		return nil
	})
}

// enrol logs in with the key of the first start, and installs the agent of the package.
func (m *machine) enrol(version string) {
	m.t.Helper()
	m.run(fmt.Sprintf("muster login --api-key-file /var/lib/muster/first-admin-key --url https://127.0.0.1:%d --ca-pin $(runuser -u muster -- muster ca-pin --data /var/lib/muster)", m.adminPort))
	m.run("cd /srv && MUSTER_KEY_PASSWORD=a-password-of-a-test muster package keys init --dir publisher && cd publisher && muster package keys publish 1.root.json")
	m.run(fmt.Sprintf("/usr/lib/muster-agent/%s/muster-agent install --prefix /usr --sysconfdir /etc --url https://127.0.0.1:%d --token $(cat /var/lib/muster/first-enrollment-token) --ca-pin $(runuser -u muster -- muster ca-pin --data /var/lib/muster) --trust-root /srv/publisher/1.root.json", version, m.agentsPort))
}

// agent waits until the server lists its only agent with a version and a status.
func (m *machine) agent(version, status string) {
	m.t.Helper()
	m.eventually("the agent is "+version+" and "+status, func() error {
		out, err := m.Run(m.t.Context(), "muster", "agents", "list", "-o", "json")
		if err != nil {
			return err
		}
		var list struct {
			Items []struct {
				Status string
				Agent  struct{ Version string }
			}
		}
		if err := json.Unmarshal([]byte(out), &list); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		if len(list.Items) != 1 || list.Items[0].Status != status || list.Items[0].Agent.Version != version {
			return fmt.Errorf("the server lists %s", out)
		}
		return nil
	})
}
