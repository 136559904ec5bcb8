package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-fleet/muster/testing/kit/harness"
	"github.com/muster-fleet/muster/testing/kit/require"
)

// shownCommand creates a key, and returns the command that the server shows for this machine.
func (w *world) shownCommand() string {
	w.Helper()
	line, err := w.Server.EnrollmentLine(w.Context())
	check(w, err)
	return line
}

// paste runs a command in a shell, in an empty folder.
func (w *world) paste(command string) (output, dir string, err error) {
	w.Helper()
	c := exec.CommandContext(w.Context(), "sh", "-c", command)
	c.Dir = w.TempDir()
	out, err := c.CombinedOutput()
	return string(out), c.Dir, err
}

// A person pastes the line that the server shows, on a host with nothing but curl and tar. The
// test only says where to install, and that no service is wanted.
func TestShownCommandInstallsAHost(t *testing.T) {
	require.Program(t, "curl")
	w := newWorld(t, harness.HostOptions{})
	w.Publish("1.1.0", w.Programs.Agent)
	h := &harness.Host{Top: filepath.Join(w.Dir, "web-01")}
	out, _, err := w.paste(w.shownCommand() + " --no-service --unsafe-top --top " + h.Top)
	if err != nil || !strings.Contains(out, "Installed muster-agent 1.1.0") || !strings.Contains(out, "Enrolled with "+w.Server.Info.AgentURL) {
		t.Fatalf("the command ended with %v:\n%s", err, out)
	}
	agents, err := w.Server.Agents(t.Context())
	check(t, err)
	if len(agents) != 1 || agents[0].Agent.Version != "1.1.0" {
		t.Errorf("the server knows %+v", agents)
	}
}

// Whoever answers in place of the server gets no token.
func TestShownCommandSendsNothingToAnotherServer(t *testing.T) {
	require.Program(t, "curl")
	w := newWorld(t, harness.HostOptions{})
	line := w.shownCommand()
	var asked atomic.Int64
	impostor := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	impostor.TLS = &tls.Config{Certificates: []tls.Certificate{ownCertificate(t)}}
	impostor.StartTLS()
	defer impostor.Close()
	top := filepath.Join(w.Dir, "web-01")
	out, _, err := w.paste(strings.ReplaceAll(line, w.Server.Info.AgentURL, impostor.URL) + " --no-service --unsafe-top --top " + top)
	if err == nil || asked.Load() != 0 || !strings.Contains(out, "certificate") {
		t.Errorf("the command ended with %v after %d requests:\n%s", err, asked.Load(), out)
	}
	if _, err := os.Stat(top); err == nil {
		t.Error("something is installed")
	}
}

// ownCertificate makes a certificate for loopback that no CA has signed.
func ownCertificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	check(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
