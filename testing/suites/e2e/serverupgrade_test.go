package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi/capin"
	"github.com/muster-fleet/muster/testing/kit/esnode"
	"github.com/muster-fleet/muster/testing/kit/harness"
	"github.com/muster-fleet/muster/testing/kit/port"
	"github.com/muster-fleet/muster/testing/kit/simagent"
	"github.com/muster-fleet/muster/testing/kit/toolchain"
)

const (
	oldServer, newServer = "1.0.0", "1.1.0"
	// upgradeTime bounds an upgrade of the servers on a loaded machine.
	upgradeTime = 4 * time.Minute
)

// serverVersions are two versions of the server. The later one has a schema more in both
// stores, from which it can go back, and a field more in enrollment keys.
var serverVersions = sync.OnceValues(func() (map[string]string, error) {
	built, err := harness.Build()
	if err != nil {
		return nil, err
	}
	root, err := toolchain.Root()
	if err != nil {
		return nil, err
	}
	overlay, err := laterSchema(root, built.Dir)
	if err != nil {
		return nil, err
	}
	older, err := toolchain.BuildServer(context.Background(), root, filepath.Join(built.Dir, oldServer), oldServer, io.Discard)
	if err != nil {
		return nil, err
	}
	newer, err := toolchain.BuildChangedServer(context.Background(), root, filepath.Join(built.Dir, newServer), newServer, overlay, io.Discard)
	return map[string]string{oldServer: older.Muster, newServer: newer.Muster}, err
})

var (
	schemaVersion = regexp.MustCompile(`const schemaVersion = (\d+)`)
	oldestReader  = regexp.MustCompile(`const oldestReader = (\d+)`)
)

// laterSchema writes the source of a later version, and returns the file for go build.
func laterSchema(root, dir string) (string, error) {
	migrations := filepath.Join(root, "server", "store", "sqlite", "migrations")
	ups, err := filepath.Glob(filepath.Join(migrations, "[0-9][0-9][0-9][0-9]_*.sql"))
	if err != nil {
		return "", err
	}
	next := 1
	for _, name := range ups {
		if !strings.HasSuffix(name, ".down.sql") {
			next++
		}
	}
	mappings := filepath.Join(root, "server", "store", "elastic", "schema.go")
	source, err := os.ReadFile(mappings)
	if err != nil {
		return "", err
	}
	now := schemaVersion.FindSubmatch(source)
	if now == nil {
		return "", fmt.Errorf("%s has no schemaVersion", mappings)
	}
	changed := schemaVersion.ReplaceAll(source, fmt.Appendf(nil, "const schemaVersion = %s + 1", now[1]))
	changed = oldestReader.ReplaceAll(changed, fmt.Appendf(nil, "const oldestReader = %s", now[1]))
	keys := filepath.Join(root, "server", "fleet", "key.go")
	source, err = os.ReadFile(keys)
	if err != nil {
		return "", err
	}
	const key = "type EnrollmentKey struct {\n"
	laterKeys := strings.Replace(string(source), key, key+"\tOfLater string `json:\"of_later\"`\n", 1)
	if laterKeys == string(source) {
		return "", fmt.Errorf("%s has no %q", keys, key)
	}
	files := map[string]string{}
	for to, text := range map[string]string{
		filepath.Join(migrations, fmt.Sprintf("%04d_notes.sql", next)):      "CREATE TABLE notes (text TEXT) STRICT;",
		filepath.Join(migrations, fmt.Sprintf("%04d_notes.down.sql", next)): "DROP TABLE notes;",
		mappings: string(changed),
		keys:     laterKeys,
	} {
		path := filepath.Join(dir, filepath.Base(to))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return "", err
		}
		files[to] = path
	}
	text, err := json.Marshal(map[string]any{"Replace": files})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, text, 0o600)
}

// serverMachine is a machine with both versions of the server, of which a service manager
// keeps one running.
type serverMachine struct {
	t                        *testing.T
	dir, muster, etc, config string
	agents, admin            string // addresses
	adminKey, token, pin     string

	mu      sync.Mutex
	cmd     *exec.Cmd
	stopped bool
	ended   chan struct{}
	starts  int
}

// newServerMachine installs both versions. store is the text of the configuration about the
// store, empty for the embedded one. A machine that is a replica of first gets its keys.
func newServerMachine(t *testing.T, store string, first *serverMachine) *serverMachine {
	t.Helper()
	built, err := serverVersions()
	check(t, err)
	agents, err := port.Address()
	check(t, err)
	admin, err := port.Address()
	check(t, err)
	m := &serverMachine{t: t, dir: t.TempDir(), agents: agents, admin: admin}
	prefix := filepath.Join(m.dir, "usr")
	m.etc, m.muster, m.config = filepath.Join(m.dir, "etc"), filepath.Join(prefix, "bin", "muster"), filepath.Join(m.dir, "server.yml")
	check(t, os.MkdirAll(prefix, 0o755))
	for _, version := range []string{oldServer, newServer} {
		out, err := exec.CommandContext(t.Context(), built[version], "server", "install", "--prefix", prefix, "--sysconfdir", m.etc).CombinedOutput()
		if err != nil {
			t.Fatalf("install %s: %v\n%s", version, err, out)
		}
	}
	check(t, os.WriteFile(m.config, fmt.Appendf(nil, "data: %s\nagents: {listen: %q}\nadmin: {listen: %q}\n%s", m.data(), m.agents, m.admin, store), 0o600))
	if first != nil {
		for _, folder := range []string{"tls", "trust"} {
			check(t, os.CopyFS(filepath.Join(m.data(), folder), os.DirFS(filepath.Join(first.data(), folder))))
		}
		m.adminKey, m.token, m.pin = first.adminKey, first.token, first.pin
	}
	m.start()
	return m
}

func (m *serverMachine) data() string { return filepath.Join(m.dir, "data") }

// start runs the server, and starts it again whenever it ends, until the test does.
func (m *serverMachine) start() {
	m.t.Helper()
	log, err := os.Create(filepath.Join(m.dir, "log"))
	check(m.t, err)
	m.ended = make(chan struct{})
	m.t.Cleanup(func() {
		m.stop()
		check(m.t, log.Close())
		if m.t.Failed() {
			text, _ := os.ReadFile(log.Name())
			m.t.Logf("the log of %s:\n%s", m.dir, text)
		}
	})
	first := make(chan struct{})
	go func() {
		defer close(m.ended)
		for m.once(log) {
			select {
			case <-first:
			default:
				close(first)
			}
			_ = m.cmd.Wait() // the log has the reason
			time.Sleep(300 * time.Millisecond)
		}
	}()
	<-first
	m.serves(oldServer)
}

// once starts the server, unless the test has ended.
func (m *serverMachine) once(log *os.File) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		return false
	}
	m.starts++
	m.cmd = exec.Command(m.muster, "server", "--config", m.config, "-o", "json")
	m.cmd.Stdout, m.cmd.Stderr = log, log
	if err := m.cmd.Start(); err != nil {
		m.t.Error(err)
		return false
	}
	return true
}

// stop ends the server for good.
func (m *serverMachine) stop() {
	m.mu.Lock()
	m.stopped = true
	_ = m.cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
	m.mu.Unlock()
	<-m.ended
}

func (m *serverMachine) kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	_ = m.cmd.Process.Kill() // it may have ended already
}

// serves waits until the server answers in a version.
func (m *serverMachine) serves(version string) {
	m.t.Helper()
	deadline := time.Now().Add(upgradeTime)
	for {
		err := m.readFirstKeys()
		var s adminapi.Server
		if err == nil {
			s, err = getAdmin[adminapi.Server](m, "/api/v1/server")
		}
		if err == nil && s.Version == version {
			return
		}
		if time.Now().After(deadline) {
			m.t.Fatalf("%s does not serve %s: it serves %q, %v", m.dir, version, s.Version, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// readFirstKeys reads the keys of the first start.
func (m *serverMachine) readFirstKeys() error {
	if m.adminKey != "" {
		return nil
	}
	key, err := os.ReadFile(filepath.Join(m.data(), "first-admin-key"))
	if err != nil {
		return err
	}
	token, err := os.ReadFile(filepath.Join(m.data(), "first-enrollment-token"))
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(m.t.Context(), m.muster, "ca-pin", "--config", m.config).Output()
	m.adminKey, m.token, m.pin = strings.TrimSpace(string(key)), strings.TrimSpace(string(token)), strings.TrimSpace(string(out))
	return err
}

func (m *serverMachine) tls() *tls.Config {
	m.t.Helper()
	config, err := capin.TLSConfig(m.pin, "127.0.0.1")
	check(m.t, err)
	return config
}

// server is for requests to its admin API.
func (m *serverMachine) server() *harness.Server {
	return &harness.Server{Info: harness.ServerInfo{AdminURL: "https://" + m.admin, AdminKey: m.adminKey, CAPin: m.pin}}
}

func getAdmin[T any](m *serverMachine, path string) (T, error) {
	ctx, cancel := context.WithTimeout(m.t.Context(), 20*time.Second)
	defer cancel()
	return harness.Get[T](ctx, m.server(), path)
}

// upgradeServers runs the command on the machine and returns how the upgrade ended.
func (m *serverMachine) upgradeServers(to string) (u fleet.ServerUpgrade, said string) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), upgradeTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, m.muster, "server", "upgrade", "--to", to, "--config", m.config).CombinedOutput()
	said = string(out)
	m.t.Logf("muster server upgrade --to %s: %v\n%s", to, err, said)
	return m.lastUpgrade(), said
}

func (m *serverMachine) lastUpgrade() (u fleet.ServerUpgrade) {
	m.t.Helper()
	out, err := exec.CommandContext(m.t.Context(), m.muster, "server", "upgrade", "--status", "-o", "json", "--config", m.config).Output()
	check(m.t, err)
	check(m.t, json.Unmarshal(out, &u))
	return u
}

// forgets waits until the server has removed its record of the upgrade.
func (m *serverMachine) forgets() {
	m.t.Helper()
	path := filepath.Join(m.data(), "server-upgrade")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		_, err := os.Stat(path)
		if errors.Is(err, os.ErrNotExist) {
			return
		}
		if time.Now().After(deadline) {
			m.t.Fatalf("%s is left: %v", path, err)
		}
	}
}

// simulatedFleet is agents that are connected to the servers.
type simulatedFleet struct {
	servers []*serverMachine
	ids     map[string]bool
}

// newSimulatedFleet enrols agents and lets them check in until the test ends.
func newSimulatedFleet(t *testing.T, n int, servers ...*serverMachine) *simulatedFleet {
	t.Helper()
	h := &simulatedFleet{servers: servers, ids: map[string]bool{}}
	var urls []string
	for _, m := range servers {
		urls = append(urls, (&url.URL{Scheme: "https", Host: m.agents}).String())
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	var mu sync.Mutex
	var enrolling sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i := range n {
		enrolling.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			host := fmt.Sprintf("host-%04d", i)
			item, err := simagent.Enrol(ctx, urls[i%len(urls)], servers[0].tls(), servers[0].token, host, "1.0.0")
			if err != nil {
				t.Errorf("enrol %s: %v", host, err)
				return
			}
			mu.Lock()
			h.ids[item.ID] = true
			mu.Unlock()
			a := simagent.New(simagent.Options{
				ID: item.ID, Key: item.AccessAPIKey, Host: host, Version: "1.0.0", Servers: urls, Home: i % len(urls), TLS: servers[0].tls(), ServersPoll: true,
			})
			running.Go(func() { a.Run(ctx) })
		})
	}
	enrolling.Wait()
	if t.Failed() {
		t.FailNow()
	}
	h.connected(t, n)
	return h
}

// connected waits until so many agents are parked at the servers.
func (h *simulatedFleet) connected(t *testing.T, n int) {
	t.Helper()
	deadline := time.Now().Add(upgradeTime)
	for {
		parked := 0
		for _, m := range h.servers {
			if s, err := getAdmin[adminapi.KibanaStatus](m, "/api/status"); err == nil && s.Limits != nil {
				parked += s.Limits.AgentsParked
			}
		}
		if parked >= n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d agents are connected", parked, n)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// complete checks that the servers know all agents, and that all are online.
func (h *simulatedFleet) complete(t *testing.T) {
	t.Helper()
	list, err := getAdmin[adminapi.AgentList](h.servers[0], "/api/fleet/agents?perPage=10000")
	check(t, err)
	found := 0
	for _, a := range list.Items {
		if h.ids[a.Id] && a.Status == "online" {
			found++
		}
	}
	if found != len(h.ids) {
		t.Errorf("%d of %d agents are online", found, len(h.ids))
	}
}

// upgraded checks how an upgrade of the servers ended, and what the command said.
func upgraded(t *testing.T, u fleet.ServerUpgrade, said string, agents int) {
	t.Helper()
	down, ok := u.Downtime()
	before, after := u.Agents()
	// An agent that is between two polls in the moment of the count is not part of it; that all
	// are connected in the end is checked apart.
	least := agents - agents/50
	if u.Phase != fleet.ServerDone || u.Problem != "" || !ok || before < least || before > agents || after < before {
		t.Errorf("the upgrade ended %s (%s), with %d agents before and %d after", u.Phase, u.Problem, before, after)
	}
	for _, want := range []string{
		fmt.Sprintf("from %s to %s in ", u.From, u.To), fmt.Sprintf("Without servers for %.1f s", down.Seconds()),
		fmt.Sprintf("%d agents were connected before, and %d are now.", before, after), "Backup of the store: " + u.Backup,
	} {
		if !strings.Contains(said, want) {
			t.Errorf("the command does not say %q", want)
		}
	}
	t.Logf("without servers for %s; %d of %d agents are connected", down, after, before)
}

// One server on the embedded store is upgraded and brought back, with its schema, while a
// thousand agents are connected.
func TestServerOnTheEmbeddedStoreIsUpgradedAndBroughtBack(t *testing.T) {
	t.Parallel()
	const agents = 1000
	m := newServerMachine(t, "", nil)
	h := newSimulatedFleet(t, agents, m)
	for _, to := range []string{newServer, oldServer} {
		u, said := m.upgradeServers(to)
		upgraded(t, u, said, agents)
		m.serves(to)
		h.connected(t, agents)
		h.complete(t)
		restored := filepath.Join(m.dir, "restored before "+to)
		if out, err := exec.CommandContext(t.Context(), m.muster, "restore", u.Backup, "--data", restored).CombinedOutput(); (err != nil) != (to == oldServer) {
			t.Errorf("restore the backup: %v\n%s", err, out) // of the later version, the earlier one cannot read it
		}
		m.forgets()
	}
	if m.starts != 1 {
		t.Errorf("the service manager started the server %d times", m.starts)
	}
}

// What only the later version knows of a document stays when the earlier one has changed that.
func TestFieldsOfALaterServerSurviveTheEarlierOne(t *testing.T) {
	t.Parallel()
	m := newServerMachine(t, "", nil)
	m.upgradeServers(newServer)
	m.serves(newServer)
	resp, err := m.server().Do(t.Context(), http.MethodPost, "/api/fleet/enrollment_api_keys", map[string]string{"policy_id": "default", "name": "later"})
	check(t, err)
	var made adminapi.EnrollmentKeyItem
	check(t, errors.Join(json.NewDecoder(resp.Body).Decode(&made), resp.Body.Close()))
	m.upgradeServers(oldServer)
	m.serves(oldServer)
	resp, err = m.server().Do(t.Context(), http.MethodDelete, "/api/fleet/enrollment_api_keys/"+made.Item.Id, nil)
	check(t, err)
	check(t, resp.Body.Close())
	m.stop()

	db, err := sql.Open("sqlite", filepath.Join(m.data(), "muster.db"))
	check(t, err)
	defer db.Close()
	var doc string
	check(t, db.QueryRowContext(t.Context(), `SELECT doc FROM documents WHERE noun = 'enrollment key' AND id = ?`, made.Item.Id).Scan(&doc))
	var key struct {
		Active  bool    `json:"active"`
		OfLater *string `json:"of_later"`
	}
	check(t, json.Unmarshal([]byte(doc), &key))
	if key.Active || key.OfLater == nil {
		t.Errorf("the key is %s", doc)
	}
}

// onElasticsearch is the configuration of servers whose store is a place in Elasticsearch.
func onElasticsearch(p esnode.Place) string {
	return fmt.Sprintf("store: {elasticsearch: {hosts: [%q], prefix: %q}}\n", p.URLs[0], p.Prefix)
}

// Two servers share a real Elasticsearch.
func TestServersOnElasticsearchAreUpgradedAndBroughtBack(t *testing.T) {
	t.Parallel()
	const agents = 1000
	es := esnode.Shared(t)
	store := onElasticsearch(es)
	first := newServerMachine(t, store, nil)
	second := newServerMachine(t, store, first)
	h := newSimulatedFleet(t, agents, first, second)
	for _, to := range []string{newServer, oldServer} {
		u, said := first.upgradeServers(to)
		upgraded(t, u, said, agents)
		if len(u.Servers) != 2 {
			t.Errorf("the servers are %+v", u.Servers)
		}
		var program struct{ Elasticsearch int }
		out, err := exec.CommandContext(t.Context(), first.muster, "server", "schema", "-o", "json").Output()
		check(t, err)
		check(t, json.Unmarshal(out, &program))
		if _, answer, err := es.Do(t.Context(), http.MethodGet, "/"+es.Prefix+"agents/_mapping", nil); err != nil || !strings.Contains(string(answer), fmt.Sprintf(`"muster_schema":%d}`, program.Elasticsearch)) {
			t.Errorf("the schema of the indices is not %d, that of %s: %v", program.Elasticsearch, to, err)
		}
		copied := strings.TrimSuffix(strings.TrimPrefix(u.Backup, "the indices "), "*")
		if status, answer, err := es.Do(t.Context(), http.MethodGet, "/"+copied+"agents/_count", nil); err != nil || status != http.StatusOK || !strings.Contains(string(answer), `"count":1000,`) {
			t.Errorf("the backup of the agents: %d %s, %v", status, answer, err)
		}
		for _, m := range []*serverMachine{first, second} {
			m.serves(to)
			m.forgets()
		}
		h.connected(t, agents)
		h.complete(t)
	}
}

// log returns what the servers of the machine have logged.
func (m *serverMachine) log() string {
	m.t.Helper()
	b, err := os.ReadFile(filepath.Join(m.dir, "log"))
	check(m.t, err)
	return string(b)
}

// killIn kills the server when its log says, after the first bytes, that a phase has begun.
func (m *serverMachine) killIn(phase fleet.ServerPhase, since int) {
	m.t.Helper()
	for deadline := time.Now().Add(upgradeTime); ; time.Sleep(5 * time.Millisecond) {
		if strings.Contains(m.log()[since:], `msg="upgrade of the servers" phase=`+string(phase)+" ") {
			m.kill()
			return
		}
		if time.Now().After(deadline) {
			m.t.Fatalf("%s does not come to the phase %s", m.dir, phase)
		}
	}
}

// begin begins an upgrade without following it.
func (m *serverMachine) begin(to string) {
	m.t.Helper()
	out, err := exec.CommandContext(m.t.Context(), m.muster, "server", "upgrade", "--to", to, "--detach", "--config", m.config).CombinedOutput()
	if err != nil {
		m.t.Fatalf("begin the upgrade to %s: %v\n%s", to, err, out)
	}
}

// untilEnded waits until the upgrade has ended, and returns it.
func (m *serverMachine) untilEnded() fleet.ServerUpgrade {
	m.t.Helper()
	for deadline := time.Now().Add(upgradeTime); ; time.Sleep(200 * time.Millisecond) {
		out, err := exec.CommandContext(m.t.Context(), m.muster, "server", "upgrade", "--status", "-o", "json", "--config", m.config).CombinedOutput()
		var u fleet.ServerUpgrade
		if err == nil {
			err = json.Unmarshal(out, &u)
		}
		if err == nil && u.Phase.Ended() {
			return u
		}
		if time.Now().After(deadline) {
			m.t.Fatalf("the upgrade does not end: %+v, %v\n%s", u, err, out)
		}
	}
}

// serverPhases are those in which a server can be killed.
var serverPhases = []fleet.ServerPhase{
	fleet.ServerCheck, fleet.ServerHold, fleet.ServerStop, fleet.ServerRecheck, fleet.ServerBackup, fleet.ServerMigrate, fleet.ServerSwitch, fleet.ServerStart, fleet.ServerVerify,
}

// killed returns the phases in which a test kills a server: every second one from the given one on, and
// all in the nightly run. Two tests have all of them between them.
func killed(from int) (phases []fleet.ServerPhase) {
	for i, phase := range serverPhases {
		if i%2 == from || toolchain.Nightly() {
			phases = append(phases, phase)
		}
	}
	return phases
}

// The only server is killed in each phase, and continues when its service manager starts it.
func TestServerThatIsKilledInAnyPhaseGoesOn(t *testing.T) {
	t.Parallel()
	const agents = 20
	m := newServerMachine(t, "", nil)
	h := newSimulatedFleet(t, agents, m)
	to := newServer
	for i, phase := range killed(1) {
		since := len(m.log())
		m.begin(to)
		m.killIn(phase, since)
		u := m.untilEnded()
		if u.Phase != fleet.ServerDone || u.To != to {
			t.Fatalf("killed in the phase %s, the upgrade to %s ended %s: %s", phase, to, u.Phase, u.Problem)
		}
		m.serves(to)
		m.forgets()
		h.connected(t, agents)
		h.complete(t)
		if m.starts != i+2 {
			t.Errorf("killed in the phase %s, the server was started %d times", phase, m.starts)
		}
		d, _ := u.Downtime()
		t.Logf("killed in the phase %s: to %s, without servers for %s", phase, to, d)
		to = map[string]string{newServer: oldServer, oldServer: newServer}[to]
	}
}

// One of two servers is killed in each phase.
func TestOneOfTwoServersThatIsKilledInAnyPhaseGoesOn(t *testing.T) {
	t.Parallel()
	const agents = 20
	store := onElasticsearch(esnode.Shared(t))
	first := newServerMachine(t, store, nil)
	second := newServerMachine(t, store, first)
	h := newSimulatedFleet(t, agents, first, second)
	to := newServer
	for i, phase := range killed(0) {
		victim := []*serverMachine{first, second}[i%2]
		since := len(victim.log())
		first.begin(to)
		victim.killIn(phase, since)
		u := first.untilEnded()
		if u.Phase != fleet.ServerDone || u.To != to || len(u.Servers) != 2 {
			t.Fatalf("killed in the phase %s, the upgrade to %s ended %s: %s", phase, to, u.Phase, u.Problem)
		}
		for _, m := range []*serverMachine{first, second} {
			m.serves(to)
			m.forgets()
		}
		h.connected(t, agents)
		h.complete(t)
		d, _ := u.Downtime()
		t.Logf("killed in the phase %s: to %s, without servers for %s", phase, to, d)
		to = map[string]string{newServer: oldServer, oldServer: newServer}[to]
	}
}

// brokenVersion is a version that accepts the configuration, knows its schema and cannot bring the
// store to it.
const brokenVersion = `#!/bin/sh
case "$*" in
--version) echo muster version 1.1.1 ;;
"server --check "*) ;;
"server schema -o json") echo '{"sqlite": 1000, "elasticsearch": 1000}' ;;
*) echo the disk is full; exit 1 ;;
esac
`

// What fails before the schema has changed is undone, also on an operator's request.
func TestUpgradeOfServersIsUndoneAsAWhole(t *testing.T) {
	t.Parallel()
	const agents = 20
	m := newServerMachine(t, "", nil)
	h := newSimulatedFleet(t, agents, m)
	asBefore := func(what string, u fleet.ServerUpgrade, problem string) {
		t.Helper()
		if u.Phase != fleet.ServerUndone || !strings.Contains(u.Problem, problem) {
			t.Errorf("%s: the upgrade ended %s: %s, want %q", what, u.Phase, u.Problem, problem)
		}
		m.serves(oldServer)
		m.forgets()
		h.connected(t, agents)
		h.complete(t)
		freeze := map[string]any{"name": "year's end", "from": time.Now().Format(time.RFC3339), "to": time.Now().Add(time.Hour).Format(time.RFC3339)}
		resp, err := m.server().Do(t.Context(), http.MethodPost, "/api/v1/freezes", freeze)
		check(t, err)
		check(t, resp.Body.Close())
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: an order is answered %s", what, resp.Status)
		}
	}

	u, said := m.upgradeServers("1.2.0")
	if !strings.Contains(said, "run `muster server install` of that version") {
		t.Errorf("without the version the command says\n%s", said)
	}
	asBefore("the version is missing", u, "version 1.2.0 is not installed in")

	// The backup cannot be written. The server has stopped by then.
	stuck := filepath.Join(m.data(), "backups")
	check(t, os.WriteFile(stuck, nil, 0o600))
	u, said = m.upgradeServers(newServer)
	if !strings.Contains(said, "has ended undone: the store could not be backed up") {
		t.Errorf("without a backup the command says\n%s", said)
	}
	asBefore("the backup fails", u, "the store could not be backed up")
	check(t, os.Remove(stuck))

	// The new version cannot change the schema. The old one has closed the store by then.
	broken := filepath.Join(m.dir, "usr", "lib", "muster", "1.1.1", "bin", "muster")
	check(t, os.MkdirAll(filepath.Dir(broken), 0o755))
	check(t, os.WriteFile(broken, []byte(brokenVersion), 0o755))
	u, _ = m.upgradeServers("1.1.1")
	asBefore("the schema cannot be changed", u, "the schema of the store could not be changed: "+broken+": exit status 1: the disk is full")

	m.begin(newServer)
	out, err := exec.CommandContext(t.Context(), m.muster, "server", "upgrade", "--undo", "--config", m.config).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "The upgrade from 1.0.0 to 1.1.0 was undone") {
		t.Errorf("muster server upgrade --undo: %v\n%s", err, out)
	}
	asBefore("an operator has undone it", m.untilEnded(), "has asked to undo it")

	// Ctrl-C ends the command, and not the upgrade.
	cmd := exec.CommandContext(t.Context(), m.muster, "server", "upgrade", "--to", newServer, "--config", m.config)
	stderr, err := cmd.StderrPipe()
	check(t, err)
	check(t, cmd.Start())
	lines := bufio.NewReader(stderr)
	begun, err := lines.ReadString('\n')
	check(t, err)
	check(t, cmd.Process.Signal(syscall.SIGINT))
	rest, err := io.ReadAll(lines)
	check(t, err)
	_ = cmd.Wait() // its exit code is checked
	if code := cmd.ProcessState.ExitCode(); code != 130 || !strings.Contains(string(rest), "the upgrade to 1.1.0 goes on, and is in the phase") {
		t.Errorf("the interrupted command ended with %d and said\n%s%s", code, begun, rest)
	}
	if u := m.untilEnded(); u.Phase != fleet.ServerDone {
		t.Errorf("after the command was interrupted, the upgrade ended %s: %s", u.Phase, u.Problem)
	}
}
