// Package doctor examines a host for `muster-agent doctor`: what keeps the agent from being
// installed, from running, from reaching its server, or from upgrading itself. Each finding names
// what mends it. The command hands in what only it may ask: the service manager.
package doctor

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/muster-fleet/muster/agent/config"
	"github.com/muster-fleet/muster/agent/gateway"
	"github.com/muster-fleet/muster/agent/identity"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/doctor"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/host/network"
	"github.com/muster-fleet/muster/packaging/pkg/install"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/server/wire/agentapi/capin"
	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
)

const op = "doctor"

// firstNeed is what an installation needs on the disk: two versions of the agent, an archive, and
// the logs, each below 100 MiB.
const firstNeed = 300 << 20

// firstInodes is how many files an installation has: those of two versions, which are few, and records.
const firstInodes = 500

// expiryWarning is how long before the end of a signed file somebody is asked to act: people in several
// places have to sign the next one.
const expiryWarning = 30 * 24 * time.Hour

// asRoot mends what this user may not read. Only the agent's user may read most of its files.
const asRoot = "run this with sudo"

// forbidden returns the finding of a file that this user may not read. The errors of records say that
// they are damaged, and to enrol again.
func forbidden(file string) doctor.Finding {
	return doctor.Doubt(asRoot, "this user may not read %s", file)
}

// ServiceState is what the service manager says of the agent's service.
type ServiceState string

// The states of a service.
const (
	ServiceRuns    ServiceState = "runs"
	ServiceStopped ServiceState = "stopped"
	ServiceMissing ServiceState = "missing"
	NoService      ServiceState = "none" // the agent was installed without one
)

// Host is the host that is examined. Disk, Top and Now are required.
type Host struct {
	Disk disk.Disk
	// Top is the agent's folder, whether or not an agent is installed there.
	Top string
	Now func() time.Time
	// URL and CAPin are those of a server to examine before a host enrols; empty if the identity
	// of the host has them.
	URL, CAPin string
	// Service returns the name and the state of the agent's service.
	Service func() (name string, state ServiceState, err error)
	// Manager is the name of the service manager, empty if there is none that is known.
	Manager string
	// CheckServices returns why no service can be registered.
	CheckServices func() error
}

// Checks returns the checks of a host on which an agent is installed, or could be.
func (h Host) Checks() []doctor.Check {
	checks := []doctor.Check{
		{Name: "system", Find: func(context.Context) doctor.Finding { return doctor.Kernel() }},
		{Name: "time server", Find: func(context.Context) doctor.Finding { return doctor.Synchronised() }},
		{Name: "SELinux", Find: func(context.Context) doctor.Finding { return doctor.SELinux(h.Top) }},
	}
	if !h.installed() {
		folder := h.existing()
		checks = append(checks,
			doctor.Check{Name: "folder", Find: func(context.Context) doctor.Finding { return doctor.Folder(folder) }},
			doctor.Check{Name: "programs", Find: func(context.Context) doctor.Finding { return doctor.NoExec(folder) }},
			doctor.Check{Name: "space", Find: func(context.Context) doctor.Finding { return h.space(folder, firstNeed, "an agent") }},
			doctor.Check{Name: "inodes", Find: func(context.Context) doctor.Finding { return h.inodes(folder, firstInodes, "an agent") }},
			doctor.Check{Name: "service manager", Find: func(context.Context) doctor.Finding { return h.registers() }},
		)
		if h.URL == "" {
			return append(checks, doctor.Check{Name: "server", Find: func(context.Context) doctor.Finding {
				return doctor.Doubt("muster-agent doctor --url https://SERVER:8220 --ca-pin sha256:…", "no agent is installed in %s, and no server was named", h.Top)
			}})
		}
		return append(checks, h.serverChecks(h.URL, gateway.Trust{Fingerprint: h.CAPin})...)
	}
	checks = append(checks,
		doctor.Check{Name: "folder", Find: func(context.Context) doctor.Finding { return doctor.Folder(h.Top) }},
		doctor.Check{Name: "programs", Find: func(context.Context) doctor.Finding { return doctor.NoExec(h.Top) }},
		doctor.Check{Name: "owners", Find: func(context.Context) doctor.Finding {
			return doctor.Protected(layout.Path(h.Top, layout.AgentLink), h.Top)
		}},
		doctor.Check{Name: "version", Find: h.version},
		doctor.Check{Name: "space", Find: func(context.Context) doctor.Finding { return h.upgradeSpace() }},
		doctor.Check{Name: "inodes", Find: func(context.Context) doctor.Finding { return h.upgradeInodes() }},
		doctor.Check{Name: "settings", Find: func(context.Context) doctor.Finding { return h.settings() }},
		doctor.Check{Name: "service", Find: func(context.Context) doctor.Finding { return h.service() }},
		doctor.Check{Name: "agent", Find: h.agent},
		doctor.Check{Name: "upgrade", Find: func(context.Context) doctor.Finding { return h.upgrade() }},
	)
	checks = append(checks, h.sourceChecks()...)
	id, err := identity.Load(h.Disk, h.Top)
	if err != nil {
		return append(checks, doctor.Check{Name: "identity", Find: func(context.Context) doctor.Finding {
			if errors.Is(err, fs.ErrPermission) {
				return forbidden(layout.Path(h.Top, layout.IdentityFile))
			}
			return doctor.Bad("on the server: muster keys create; here: muster-agent enroll --url … --token-file … --ca-pin … --trust-root …", "%v", err)
		}})
	}
	c, _ := config.Effective(h.Disk, h.Top) // another check says what is wrong with the file
	server := cmp.Or(c.Server.URL, id.ServerURL)
	trust := gateway.Trust{CAPEM: id.CAPEM, Fingerprint: id.CAFingerprint, Network: c.Network}
	checks = append(checks, h.serverChecks(server, trust)...)
	return append(checks, doctor.Check{Name: "publishers", Find: func(context.Context) doctor.Finding { return h.publishers() }})
}

func (h Host) installed() bool {
	_, err := h.Disk.Lstat(op, layout.Path(h.Top, layout.AgentLink))
	return !errors.Is(err, fs.ErrNotExist)
}

// existing returns the folder, or the nearest one above it that exists.
func (h Host) existing() string {
	for dir := h.Top; ; dir = filepath.Dir(dir) {
		if _, err := h.Disk.Lstat(op, dir); err == nil || dir == filepath.Dir(dir) {
			return dir
		}
	}
}

func (h Host) space(folder string, need int64, what string) doctor.Finding {
	free, err := h.Disk.Free(op, folder)
	if err != nil {
		return doctor.Doubt("df -h "+folder, "the free space is not known: %v", err)
	}
	return doctor.Space(folder, free, need, what)
}

func (h Host) inodes(folder string, need int64, what string) doctor.Finding {
	free, known := disk.FreeInodes(h.Disk, op, folder)
	if !known {
		return doctor.Finding{} // the file system has no such number
	}
	return doctor.Inodes(folder, free, need, what)
}

func (h Host) registers() doctor.Finding {
	if h.CheckServices == nil {
		return doctor.Finding{}
	}
	if err := h.CheckServices(); err != nil {
		return doctor.Bad("install with sudo, and with a --top that services see, such as /opt/muster; or with --no-service, and have what starts programs here run `muster-agent run`", "%v", err)
	}
	if h.Manager == "" {
		return doctor.Bad("install with --no-service, and have something else run `muster-agent run`", "no service manager was found")
	}
	return doctor.Good("%s can start the agent", h.Manager)
}

// version reports whether the pointer leads to a version that is whole.
func (h Host) version(ctx context.Context) doctor.Finding {
	const mend = "in the folder of an unpacked package: muster-agent uninstall, then the line for a new host that `muster keys create` prints"
	pointer, home, err := h.current()
	if err != nil {
		return doctor.Bad(mend, "%v", err)
	}
	m, err := install.CheckIntact(ctx, h.Disk, h.Top, home)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return forbidden(layout.Path(h.Top, home))
	case err != nil && errors.Is(err, context.Cause(ctx)):
		return doctor.Doubt("look for a slow disk: sudo dmesg | tail", "the files of the current version could not be read in time")
	case err != nil:
		return doctor.Bad(mend, "%s leads to a version that is not whole: %v", pointer, err)
	}
	return doctor.Good("%s is the current version", m.FullVersion())
}

// current returns the pointer, and the home of the version that it leads to.
func (h Host) current() (pointer, home string, err error) {
	roots, err := disk.FindRoots(h.Disk, h.Top)
	if err != nil {
		return "", "", err
	}
	pointer = roots.Link(layout.AgentLink)
	target, err := h.Disk.Readlink(op, pointer)
	if err != nil {
		return pointer, "", err
	}
	return pointer, roots.HomeOf(target), nil
}

// upgradeSpace compares the free space with the need of a version as large as the current one.
func (h Host) upgradeSpace() doctor.Finding {
	_, home, err := h.current()
	if err != nil {
		return doctor.Finding{} // the check of the version says it
	}
	folder := layout.Path(h.Top, home)
	unpacked, err := disk.Size(h.Disk, op, folder)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return forbidden(folder)
	case err != nil:
		return doctor.Doubt("ls -l "+folder, "%v", err)
	}
	return h.space(h.Top, install.UpgradeNeed(unpacked/2, unpacked, 0), "an upgrade")
}

// upgradeInodes makes the check of an upgrade.
func (h Host) upgradeInodes() doctor.Finding {
	_, home, err := h.current()
	if err != nil {
		return doctor.Finding{} // the check of the version says it
	}
	n, err := disk.Inodes(h.Disk, op, layout.Path(h.Top, home))
	if err != nil {
		return doctor.Finding{} // the check of the space says it
	}
	return h.inodes(h.Top, install.UpgradeInodes(n), "an upgrade")
}

func (h Host) settings() doctor.Finding {
	if _, err := config.Load(h.Disk, h.Top); err != nil {
		return doctor.Bad("correct the file, and restart the agent", "%v", err)
	}
	return doctor.Good("%s is valid", layout.ConfigFile)
}

func (h Host) service() doctor.Finding {
	if h.Service == nil {
		return doctor.Finding{}
	}
	name, state, err := h.Service()
	switch {
	case err != nil:
		return doctor.Doubt(asRoot, "the service manager does not answer: %v", err)
	case state == NoService:
		return doctor.Doubt("have something start `muster-agent run` at boot", "the agent was installed without a service")
	case state == ServiceMissing:
		return doctor.Bad("muster-agent uninstall, then install it again", "the service %s is not registered", name)
	case state == ServiceStopped:
		return doctor.Bad("sudo systemctl enable --now "+name+", or what your service manager has for that", "the service %s does not run", name)
	}
	return doctor.Good("%s runs under %s", name, h.Manager)
}

// agent asks the agent itself.
func (h Host) agent(ctx context.Context) doctor.Finding {
	health, err := probe.Client{Dial: probe.DialSocket(h.Top)}.Health(ctx)
	switch {
	case errors.Is(err, fs.ErrPermission): // also of an agent that is said not to run
		return forbidden(probe.SocketPath(h.Top))
	case errors.Is(err, probe.ErrNotRunning):
		return doctor.Bad("start its service; why it ended is in "+layout.Path(h.Top, layout.AgentLogFile), "the agent does not run")
	case err != nil:
		return doctor.Bad("restart its service; what it did last is in "+layout.Path(h.Top, layout.AgentLogFile), "the agent does not answer: %v", err)
	case health.State != probe.Healthy:
		return doctor.Bad("muster-agent status; muster-agent diagnostics", "the agent is %s: %s", health.State, health.Message)
	}
	return doctor.Good("it runs as process %d and is healthy", health.PID)
}

// upgrade reports whether an upgrade is being watched. The agent begins no other one while there is
// a marker, and only a watcher removes it.
func (h Host) upgrade() doctor.Finding {
	file := layout.Path(h.Top, layout.MarkerFile)
	m, err := handoff.ReadMarker(h.Disk, h.Top)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return forbidden(file)
	case err != nil: // agent and watcher ignore it
		return doctor.Doubt("if the current version works: sudo rm "+file, "no upgrade is being watched, since its marker cannot be read: %v", err)
	case m == nil:
		return doctor.Good("no upgrade is under way")
	}
	pointer, home, err := h.current()
	if err == nil && home != m.From.Home && home != m.To.Home {
		return doctor.Bad("if the current version works: sudo rm "+file, "%s leads to %s, but the upgrade from %s to %s is being watched: the watcher leaves the host alone, and the agent upgrades to nothing else",
			pointer, home, m.From.FullVersion(), m.To.FullVersion())
	}
	return doctor.Doubt("wait for the verdict: muster-agent status", "the upgrade from %s to %s is being watched; the watcher keeps or restores the version", m.From.FullVersion(), m.To.FullVersion())
}

func (h Host) serverChecks(server string, trust gateway.Trust) []doctor.Check {
	return []doctor.Check{
		{Name: "proxy", Find: func(context.Context) doctor.Finding { return proxy(server, trust.Network) }},
		{Name: "server", Find: func(ctx context.Context) doctor.Finding {
			_, finding := ask(ctx, server, trust)
			return finding
		}},
		{Name: "clock", Find: func(ctx context.Context) doctor.Finding {
			date, finding := ask(ctx, server, trust)
			if date.IsZero() || finding.Level == doctor.Problem {
				return doctor.Finding{} // the check of the server says why
			}
			return doctor.Clock(h.Now(), date, "the server's")
		}},
	}
}

// proxy names the proxy that connections to the server use, which is easily forgotten.
func proxy(server string, settings network.Settings) doctor.Finding {
	u, err := url.Parse(server)
	if err != nil {
		return doctor.Finding{} // the check of the server says it
	}
	p, err := settings.ProxyFor(&http.Request{URL: u}) // it ignores a proxy that is no address
	if err != nil || p == nil {
		return doctor.Finding{}
	}
	if settings.Proxy != "" {
		return doctor.Good("connections to %s go through the proxy %s (network.proxy in agent.yml)", u.Host, p.Redacted())
	}
	return doctor.Doubt("if it should: name it as network.proxy in agent.yml, since a service does not have the variables of a shell; if it should not: export NO_PROXY="+u.Hostname(), "connections to %s go through the proxy %s of this environment", u.Host, p.Redacted())
}

// ask asks a server for its status, and returns the time of its clock.
func ask(ctx context.Context, server string, trust gateway.Trust) (date time.Time, f doctor.Finding) {
	const mend = "name it as https://SERVER:8220: with --url, or if an agent is installed as server.url in agent.yml"
	// An enrolment accepts http on the same machine, where the agent's key is not sent over a network.
	if u, err := url.Parse(server); err == nil && u.Scheme != "https" && (u.Scheme != "http" || !gateway.IsLoopback(u.Hostname())) {
		return date, doctor.Bad(mend, "%s is not https", server)
	}
	client, err := trust.HTTPClient(server)
	if err != nil {
		return date, doctor.Bad(mend, "%v", err)
	}
	defer client.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(server, "/")+agentapi.PathStatus, nil)
	if err != nil {
		return date, doctor.Bad(mend, "%v", err)
	}
	answer, err := client.Do(r)
	if err != nil {
		return date, unreachable(server, r.URL.Hostname(), err)
	}
	defer answer.Body.Close()
	date, _ = http.ParseTime(answer.Header.Get("Date"))
	switch answer.StatusCode {
	case http.StatusOK:
		return date, doctor.Good("%s answers", server)
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		return date, doctor.Bad("use the port for agents, 8220 unless configured otherwise", "%s is not the port for agents: it answers %s", server, answer.Status)
	}
	return date, doctor.Bad("on the server: muster status; journalctl --unit muster", "%s answers %s", server, answer.Status)
}

// unreachable explains why a server cannot be reached.
func unreachable(server, name string, err error) doctor.Finding {
	var (
		dns       *net.DNSError
		authority x509.UnknownAuthorityError
		invalid   x509.CertificateInvalidError
		hostname  x509.HostnameError
		header    tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &dns):
		return doctor.Bad("getent hosts "+name+"; correct the name in server.url of agent.yml, or your DNS", "no host has the name %s", name)
	case errors.Is(err, syscall.ECONNREFUSED):
		return doctor.Bad("on the server: systemctl status muster", "nothing listens at %s", server)
	case errors.Is(err, http.ErrSchemeMismatch), errors.As(err, &header):
		return doctor.Bad("pass the https port of the server", "%s does not speak TLS", server)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return doctor.Bad("look at the clock here and on the server: `timedatectl`", "the server's certificate is not valid at the time of this machine")
	case errors.As(err, &hostname):
		return doctor.Bad("on the server: add the name to tls.names in its configuration", "the server's certificate does not name %s", name)
	case errors.Is(err, capin.ErrMismatch):
		return doctor.Bad("on the server: muster ca-pin; pass that one with --ca-pin, or correct the address if it is another server", "%v", errors.Unwrap(err))
	case errors.As(err, &authority):
		return doctor.Bad("on the server: muster ca-pin; if it is another server, correct the address, otherwise enrol this host again", "the server has another CA than the one that is expected: %v", errors.Unwrap(err))
	case errors.Is(err, context.DeadlineExceeded), os.IsTimeout(err):
		return doctor.Bad("look for a firewall between this host and "+server, "%s does not answer", server)
	}
	return doctor.Bad("on the server: muster ca-pin; systemctl status muster", "%s cannot be reached: %v", server, errors.Unwrap(err))
}

// publishers reports whether the host trusts anybody: without, it refuses every upgrade.
func (h Host) publishers() doctor.Finding {
	const mend = "enrol it again with the line that `muster keys create` prints"
	dir := layout.Path(h.Top, layout.TrustDir)
	pinned, err := tuf.Pinned(h.Disk, dir)
	var files []tuf.Expiry
	if pinned {
		files, err = tuf.StoredExpiries(h.Disk, dir)
	}
	switch {
	case err != nil:
		return doctor.Bad(mend, "the pinned root of the publishers cannot be read: %v", err)
	case pinned:
		return signedFiles(files, h.Now())
	}
	return doctor.Bad(mend, "this host trusts no publisher, and refuses every upgrade")
}

// signedFiles judges the files that the publishers have signed, as the host has them, by the one that
// expires first. A host that has not asked for a package for long may have older ones than the server.
func signedFiles(files []tuf.Expiry, now time.Time) doctor.Finding {
	f := slices.MinFunc(files, func(a, b tuf.Expiry) int { return a.Expires.Compare(b.Expires) }) // it always has a root
	sign := map[tuf.Role]string{tuf.RoleRoot: "muster package keys rotate", tuf.RoleTargets: "muster package keys renew"}[f.Role]
	mend := fmt.Sprintf("muster package keys show --server; if it has no newer %s, let %s sign one: %s", f.Role, f.Who, sign)
	switch left := f.Expires.Sub(now); {
	case left <= 0:
		return doctor.Doubt(mend, "%s version %d, which the publishers have signed, expired on %s; the host asks for a newer one before it upgrades", f.Role, f.Version, f.Expires.Local().Format(time.DateOnly))
	case left < expiryWarning:
		return doctor.Doubt(mend, "%s version %d, which the publishers have signed, expires on %s; then the host upgrades to nothing new", f.Role, f.Version, f.Expires.Local().Format(time.DateOnly))
	}
	return doctor.Good("upgrades are verified with the pinned root of the publishers")
}
