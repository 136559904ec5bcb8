// Package doctor examines a server's machine for `muster doctor`: what keeps the server from
// starting, from being reached, or from being trusted. Each finding names what mends it. It reads
// what the server reads, and changes nothing.
package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/doctor"
	"github.com/muster-fleet/muster/server/agents/limit"
	"github.com/muster-fleet/muster/server/app"
)

const (
	op = "doctor"

	// spareNeed is what a server needs on the disk beside its store: its log, and the packages
	// that people push, which are some dozen MiB each.
	spareNeed = 256 << 20

	// service is the unit that the packages bring, and `muster server unit` prints.
	service = "muster.service"

	// unitFiles is how many files that unit may open: more than the agents that a server is made for.
	unitFiles = 1 << 20
)

// Server is the server that is examined. All fields are required.
type Server struct {
	Disk disk.Disk
	// Config is the configuration, and ConfigError why it was refused; then it has defaults.
	Config      app.Config
	ConfigError error
	// Programs are the paths by which people run the server's program.
	Programs []string
	// StoreFile is the file of the embedded store.
	StoreFile string
	// Ping returns why Elasticsearch cannot be used, or takes no writes. It is not called with the
	// embedded store.
	Ping func(ctx context.Context) error
	Now  func() time.Time
}

// Checks returns the checks of the server, whether or not it runs.
func (s Server) Checks() []doctor.Check {
	simple := func(f func() doctor.Finding) func(context.Context) doctor.Finding {
		return func(context.Context) doctor.Finding { return f() }
	}
	checks := []doctor.Check{
		{Name: "system", Find: simple(doctor.Kernel)},
		{Name: "time server", Find: simple(doctor.Synchronised)},
		{Name: "SELinux", Find: simple(func() doctor.Finding { return doctor.SELinux("/usr/lib/muster") })},
		{Name: "programs", Find: simple(s.programs)},
		{Name: "configuration", Find: simple(s.configuration)},
		{Name: "data folder", Find: simple(s.folder)},
		{Name: "owners", Find: simple(func() doctor.Finding { return doctor.Owners(s.Config.Data) })},
		{Name: "space", Find: simple(s.space)},
		{Name: "agents' port", Find: func(ctx context.Context) doctor.Finding { return s.port(ctx, s.Config.Agents.Listen, "agents.listen") }},
		{Name: "operators' port", Find: func(ctx context.Context) doctor.Finding { return s.port(ctx, s.Config.Admin.Listen, "admin.listen") }},
		{Name: "server", Find: s.ready},
		{Name: "certificate", Find: s.certificate},
		{Name: "CA", Find: simple(s.ca)},
		{Name: "keys", Find: simple(s.keys)},
		{Name: "service", Find: s.service},
		{Name: "open files", Find: s.files},
	}
	if s.Config.Store.Elasticsearch != nil {
		checks = append(checks, doctor.Check{Name: "Elasticsearch", Find: s.elasticsearch})
	}
	return checks
}

// programs reports the first of the programs that is not protected.
func (s Server) programs() (f doctor.Finding) {
	for _, path := range s.Programs {
		if f = doctor.Protected(path, filepath.Dir(path)); f.Level == doctor.Problem || f.Level == doctor.Warning {
			return f
		}
	}
	return f
}

func (s Server) configuration() doctor.Finding {
	file := s.Config.File
	switch {
	case s.ConfigError != nil:
		return doctor.Bad("correct it; muster server --example-config explains every key; then: muster server --check --config "+file, "%v", s.ConfigError)
	case file == "":
		return doctor.Good("without a file: every key has its default")
	}
	return doctor.Good("%s is valid", file)
}

func (s Server) folder() doctor.Finding {
	if _, err := s.Disk.Lstat(op, s.Config.Data); errors.Is(err, fs.ErrNotExist) {
		if parent := doctor.Folder(filepath.Dir(s.Config.Data)); parent.Level != doctor.OK {
			return parent
		}
		return doctor.Good("the first start makes %s", s.Config.Data)
	}
	return doctor.Folder(s.Config.Data)
}

// space asks for room for a copy of the store, which an upgrade of the server makes.
func (s Server) space() doctor.Finding {
	folder := s.Config.Data
	free, err := s.Disk.Free(op, folder)
	if errors.Is(err, fs.ErrNotExist) {
		folder = filepath.Dir(folder)
		free, err = s.Disk.Free(op, folder)
	}
	if err != nil {
		return doctor.Doubt("df -h "+folder, "the free space is not known: %v", err)
	}
	need := int64(spareNeed)
	if fi, err := s.Disk.Lstat(op, s.StoreFile); err == nil {
		need += fi.Size()
	}
	return doctor.Space(folder, free, need, "a server with its backup")
}

// port accepts a port that is free, or that a Muster server has.
func (s Server) port(ctx context.Context, listen, key string) doctor.Finding {
	free, holder, f := doctor.Port(listen)
	if free || f.Level == doctor.OK {
		return f
	}
	if conn, err := s.dial(ctx, listen); err == nil {
		defer conn.Close()
		if certs := conn.ConnectionState().PeerCertificates; len(certs) > 0 && s.isOurs(certs) {
			return doctor.Good("%s is the server's", listen)
		}
	}
	if holder == "" {
		f.Mend += "; run this with sudo to see which"
	}
	f.Mend += " (" + key + ")"
	return f
}

// dial connects to this machine at the port of a listener.
func (s Server) dial(ctx context.Context, listen string) (*tls.Conn, error) {
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", local(listen)) //nolint:gosec // the certificate is what is examined
	if err != nil {
		return nil, err
	}
	return conn.(*tls.Conn), nil
}

// local returns the address at which this machine reaches a listener.
func local(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}

// isOurs reports whether a chain ends at the CA in the data folder, or is the operator's.
func (s Server) isOurs(chain []*x509.Certificate) bool {
	ca, err := s.readCA()
	if err != nil {
		return s.Config.TLS.Certificate != ""
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	_, err = chain[0].Verify(x509.VerifyOptions{Roots: roots, CurrentTime: chain[0].NotBefore})
	return err == nil
}

func (s Server) readCA() (*x509.Certificate, error) {
	file := filepath.Join(s.Config.Data, "tls", "ca.crt")
	if s.Config.TLS.Certificate != "" {
		file = s.Config.TLS.Certificate
	}
	text, err := s.Disk.ReadFile(op, file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s has no certificate in PEM", file)
	}
	return x509.ParseCertificate(block.Bytes)
}

// ready asks the running server, as a load balancer does.
func (s Server) ready(ctx context.Context) doctor.Finding {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}} //nolint:gosec // no secret is sent
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+local(s.Config.Admin.Listen)+"/readyz", nil)
	if err != nil {
		return doctor.Bad("correct admin.listen", "%v", err)
	}
	answer, err := client.Do(r)
	if err != nil {
		return doctor.Doubt("sudo systemctl start muster; journalctl --unit muster says why it ended", "no server answers at %s", s.Config.Admin.Listen)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return doctor.Bad("muster status; journalctl --unit muster", "the server runs and is not ready: it answers %s", answer.Status)
	}
	return doctor.Good("it runs and is ready")
}

// certificate examines what the running server shows to agents.
func (s Server) certificate(ctx context.Context) doctor.Finding {
	conn, err := s.dial(ctx, s.Config.Agents.Listen)
	if err != nil {
		return doctor.Finding{} // the check of the server says that none runs
	}
	defer conn.Close()
	certs := conn.ConnectionState().PeerCertificates
	if len(certs) == 0 {
		return doctor.Finding{}
	}
	host := ""
	if u, err := url.Parse(s.Config.Agents.URL); err == nil {
		host = u.Hostname()
	}
	mend := "add the name to tls.names in the configuration; sudo systemctl restart muster, which renews it"
	if _, err := s.Disk.Lstat(op, filepath.Join(s.Config.Data, "tls", "ca.key")); errors.Is(err, fs.ErrNotExist) {
		mend = "the CA's key is kept elsewhere: issue another certificate there, and install it (muster ca --help)"
	}
	if s.Config.TLS.Certificate != "" {
		mend = "replace " + s.Config.TLS.Certificate + ", which the server reads again by itself"
	}
	return doctor.Certificate(certs[0], host, s.Now(), mend)
}

func (s Server) ca() doctor.Finding {
	ca, err := s.readCA()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return doctor.Good("the first start makes it")
	case errors.Is(err, fs.ErrPermission):
		return doctor.Doubt("run this as the server's user: sudo runuser -u muster -- muster doctor", "this user may not read it")
	case err != nil:
		return doctor.Bad("put it back from a backup: muster restore", "%v", err)
	}
	return doctor.Certificate(ca, "", s.Now(), "muster ca-pin --help has the steps to another one; hosts have to enrol again")
}

// keys reports the keys that a server beside an existing CA must have.
func (s Server) keys() doctor.Finding {
	if _, err := s.readCA(); err != nil {
		return doctor.Finding{}
	}
	var missing []string
	for _, name := range []string{"online.key", "session-key", "encryption-key"} {
		file := filepath.Join(s.Config.Data, "trust", name)
		if _, err := s.Disk.Lstat(op, file); errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, file)
		}
	}
	if len(missing) > 0 {
		return doctor.Bad("copy the folder trust from another server, or from a backup", "missing: %s", strings.Join(missing, ", "))
	}
	return doctor.Good("the server has its keys")
}

// service asks systemd, where it runs.
func (s Server) service(ctx context.Context) doctor.Finding {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return doctor.Doubt("have something start `muster server` at boot", "systemd does not run here")
	}
	enabled := systemctl(ctx, "is-enabled")
	active := systemctl(ctx, "is-active")
	switch {
	case !isUnit(enabled):
		return doctor.Doubt("sudo muster server unit --dir /etc/systemd/system && sudo systemctl daemon-reload && sudo systemctl enable --now muster", "there is no unit %s", service)
	case active == "failed":
		return doctor.Bad("journalctl --unit muster; sudo systemctl restart muster", "%s has failed", service)
	case active != "active":
		return doctor.Doubt("sudo systemctl start muster", "%s is %s", service, active)
	case enabled != "enabled":
		return doctor.Doubt("sudo systemctl enable muster", "%s runs and does not start at boot: it is %s", service, enabled)
	}
	return doctor.Good("%s runs and starts at boot", service)
}

// isUnit reports whether systemd knows the service, of which `systemctl is-enabled` printed enabled.
func isUnit(enabled string) bool { return enabled != "" && enabled != "not-found" }

// systemctl returns the word that systemctl prints of the service; its exit status says the same.
func systemctl(ctx context.Context, verb string, args ...string) string {
	out, err := exec.CommandContext(ctx, "systemctl", append([]string{verb, service}, args...)...).Output()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// files reports how many agents the open files of the service allow.
func (s Server) files(ctx context.Context) doctor.Finding {
	if _, err := os.Stat("/run/systemd/system"); err != nil || !isUnit(systemctl(ctx, "is-enabled")) {
		return doctor.Finding{} // a service has its own limit, which is not that of this process
	}
	allowed, err := strconv.Atoi(systemctl(ctx, "show", "--property=LimitNOFILE", "--value"))
	if err != nil {
		return doctor.Finding{} // it has no limit
	}
	return openFiles(allowed, limit.ThisMachine(), s.Config.Limits)
}

// openFiles compares the agents for which a machine has memory with those for which a service may
// open connections.
func openFiles(allowed int, m limit.Machine, c limit.Config) doctor.Finding {
	mend := fmt.Sprintf("put LimitNOFILE=%d in the section [Service] with `sudo systemctl edit muster`; sudo systemctl restart muster", unitFiles)
	m.Descriptors = 0
	wanted, err := limit.Derive(m, c)
	if err != nil {
		return doctor.Bad("correct the section limits of the configuration", "%v", err)
	}
	m.Descriptors = allowed
	has, err := limit.Derive(m, c)
	switch {
	case err != nil:
		return doctor.Bad(mend, "%v", err)
	case has.Agents < wanted.Agents && allowed < unitFiles:
		return doctor.Doubt(mend, "the service may open %d files, enough for %d agents; the memory is enough for %d", allowed, has.Agents, wanted.Agents)
	}
	return doctor.Good("the service may open %d files, enough for %d agents", allowed, has.Agents)
}

func (s Server) elasticsearch(ctx context.Context) doctor.Finding {
	if err := s.Ping(ctx); err != nil {
		return doctor.Bad("curl the addresses in store.elasticsearch.hosts from this machine, and look at _cluster/health there", "%v", err)
	}
	return doctor.Good("it answers; the indices that it has can be read and written")
}
