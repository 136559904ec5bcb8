package architecture

import (
	"path"
	"strings"
)

// areas is the import table: for each top folder, the others that its code may import.
// A test compares it with the README's import map. Tests may also import testing.
var areas = []row{
	{"packaging", nil, "publishers build and verify packages without a server or an agent"},
	{"watcher", []string{"packaging", "server/wire/agentapi"}, "the watcher must work when the agent does not, so it shares no logic with it"},
	{"agent", []string{"packaging", "watcher/handoff", "watcher/probe", "watcher/beacon", "server/wire/agentapi"}, "everything that the agent links runs on every host, so it imports only formats"},
	{"server", []string{"packaging", "ui"}, "the server knows agents and watchers only through the protocol"},
	{"ui", nil, "the UI is a client of the admin API; the server embeds it, not the other way round"},
	{"testing", []string{"packaging", "watcher", "agent", "server", "ui"}, ""},
}

type row struct {
	from   string
	to     []string
	reason string
}

// ban forbids imports. A pattern is a folder of this repository or an import path; with
// "/..." it includes everything below.
type ban struct {
	// from are the packages that the ban applies to, except unless.
	from, unless []string
	// to are the packages that they must not import, except only.
	to, only []string
	// deep includes indirect imports through packages of this repository.
	deep bool
	// tests includes test files.
	tests  bool
	reason string
}

var shipped = []string{"packaging/...", "watcher/...", "agent/...", "server/...", "ui/..."}

// rooms are the folders of the server, in the one order of imports: each may import those before it.
var rooms = []string{"wire", "kql", "fleet", "clock", "store", "agents", "rollout", "insight", "node", "api", "app", "cli"}

// domain is the part of the server without HTTP, databases or other technology.
var domain = []string{
	"server/fleet/...", "server/kql/...", "server/clock", "server/store", "server/store/audit", "server/store/event/...", "server/store/keyfile", "server/store/lease/...", "server/store/storehealth/...",
	"server/agents/...", "server/rollout/...", "server/insight/...", "server/node/...", "server/api/access/...",
}

// inOrder bans imports against the order of the rooms.
func inOrder() (out []ban) {
	for i, room := range rooms {
		allowed := []string{"//server/" + room + "/..."}
		for _, before := range rooms[:i] {
			allowed = append(allowed, "//server/"+before+"/...")
		}
		out = append(out, ban{
			from: []string{"server/" + room + "/..."}, unless: []string{support}, to: []string{"//server/..."}, only: allowed,
			reason: "the rooms of the server import one way: " + strings.Join(rooms, " ← "),
		})
	}
	return out
}

// only bans a library except in the given packages.
func only(library, reason string, places ...string) ban {
	to := []string{library}
	if strings.Contains(library, ".") {
		to = append(to, library+"/...") // a module, not a package of the standard library
	}
	return ban{from: []string{"..."}, unless: places, to: to, reason: reason}
}

var bans = []ban{
	{
		from: shipped, unless: []string{support}, to: []string{"//testing/...", "testing", "testing/..."}, deep: true,
		reason: "programs that run on hosts contain no test helpers",
	},
	{
		from: []string{"..."}, unless: []string{support, "testing/kit/esnode", "testing/kit/nspawn", "testing/kit/docker"}, to: []string{"//testing/kit/require", "go.uber.org/goleak", "pgregory.net/rapid"},
		reason: "they fail or skip a test, so only _test.go files, support packages, esnode, nspawn and docker use them",
	},
	{
		from: shipped, unless: []string{support}, to: []string{support}, deep: true,
		reason: "packages whose name ends in test are only for tests",
	},
	{
		from: []string{"testing/kit/..."}, to: []string{"//testing/tools/..."}, tests: true,
		reason: "the folders of testing import one way: what tests use (kit) ← programs (tools) ← the tests (suites)",
	},
	{
		from: []string{"..."}, to: []string{"//testing/suites/..."}, tests: true,
		reason: "a suite is only run: what others use is in testing/kit",
	},

	// Formats that outlive a process.
	{
		from: []string{"server/wire/agentapi/..."}, to: []string{"//..."}, only: []string{"//server/wire/agentapi/..."}, tests: true,
		reason: "the agent links it, and it reads messages of other versions: a format depends on nothing that may change",
	},
	{
		from: []string{"server/api/adminapi"}, to: []string{"//..."}, tests: true,
		only:   []string{"//server/fleet", "//server/rollout/plan", "//server/rollout/explain", "//server/rollout/spec", "//server/wire/agentapi"},
		reason: "its tables name the types of bodies and answers, which are those of the domain or its own",
	},
	{
		from: []string{"packaging/host/..."}, to: []string{"//..."}, only: []string{"//packaging/host/..."},
		reason: "the folders of packaging import one way: host ← pkg ← release",
	},
	{
		from: []string{"packaging/host/layout"}, to: []string{"//..."},
		reason: "it has only names, so that every program on a host can import it",
	},
	{
		from: []string{"packaging/pkg/manifest", "packaging/host/disk", "packaging/pkg/trust"}, to: []string{"//..."}, only: []string{"//packaging/host/layout", "//packaging/pkg/yamltext"},
		reason: "each has one task, separate from the others: content, durable writes, trust",
	},
	{
		from: []string{"packaging/pkg/yamltext"}, to: []string{"//..."},
		reason: "it bounds a text, whatever that is about",
	},
	{
		from: []string{"packaging/pkg/runtimes"}, to: []string{"//..."}, only: []string{"//packaging/pkg/manifest"},
		reason: "agents, servers and publishers check the same settings with it",
	},
	{
		from: []string{"packaging/pkg/runtimes"}, to: []string{"net", "net/http/...", "os", "os/...", "syscall", "log", "log/slog"},
		reason: "it decides about a package, wherever it is: what depends on the host is for the adapters of agents",
	},
	{
		from: []string{"packaging/pkg/trust"}, to: []string{"net", "net/...", "os", "os/...", "io/fs"}, deep: true,
		reason: "it decides about the given bytes, independently of how they are fetched or opened",
	},
	{
		from: []string{"packaging/pkg/trust/tuf"}, to: []string{"//..."}, only: []string{"//packaging/pkg/trust", "//packaging/host/disk", "//packaging/pkg/manifest"},
		reason: "it decides like packaging/pkg/trust, and also stores verified metadata and parses archive names",
	},
	{
		from: []string{"packaging/pkg/trust/tuf"}, to: []string{"net", "net/...", "os", "os/..."},
		reason: "the fetcher and the disk are parameters, so that a test can fail each call",
	},
	{
		from: []string{"watcher/handoff"}, to: []string{"//..."}, only: []string{"//packaging/host/disk", "//packaging/host/layout", "//packaging/pkg/manifest"},
		reason: "an old watcher and a new agent share this format, which is all in one package",
	},
	{
		from: []string{"watcher/beacon"}, to: []string{"//..."}, only: []string{"//packaging/host/disk", "//packaging/host/layout", "//packaging/host/network", "//server/wire/agentapi/..."},
		reason: "the agent links it to write the watcher's credential, and must not link the watcher",
	},
	{
		from: []string{"watcher/probe"}, to: []string{"//..."}, only: []string{"//packaging/pkg/manifest", "//packaging/host/socket"},
		reason: "an old watcher and a new agent share this protocol, which is all in one package",
	},

	{
		from: []string{"watcher/..."}, unless: []string{"watcher/beacon", "watcher/report"}, to: []string{"//server/..."},
		reason: "only these two packages talk to the server; the verdict does not depend on the server's types",
	},

	// Decide in pure functions.
	{
		from: []string{"server/fleet", "server/kql"}, deep: true,
		to:     []string{"net", "net/...", "os", "os/...", "database/...", "io/fs", "io/ioutil", "log", "log/slog", "syscall", "sync", "context"},
		reason: "they depend only on their arguments, so that previews, simulations and tests have the same results as production",
	},
	{
		from: []string{"server/rollout/spec", "server/rollout/spec/v1alpha1", "server/rollout/spec/conversion"}, deep: true,
		to:     []string{"net/http/...", "os/exec", "database/...", "log", "log/slog", "context", "//server/store/..."},
		reason: "hashes and conversions depend only on the object, so that no update of a server starts a rollout",
	},
	{
		from: []string{"server/insight/attention"}, to: []string{"//..."}, only: []string{"//server/fleet"},
		reason: "what waits for a person is decided from facts that server/insight/attention/facts reads",
	},
	{
		from: []string{"server/api/admin"}, to: []string{"//server/store", "//server/store/sqlite", "//server/store/elastic"},
		reason: "a handler parses, calls a domain function and renders: what reads or writes documents is in the room that owns the noun",
	},
	{
		from: []string{"server/rollout/configfile"}, to: []string{"net/http/...", "os", "os/...", "io/ioutil", "log", "log/slog", "//server/store/...", "//server/rollout", "//server/rollout/..."},
		reason: "templates are given to it, so that they reach no file, no environment and no network, and so that rollouts can call it",
	},
	{
		from: []string{"server/store"}, to: []string{"//..."}, only: []string{"//server/fleet", "//server/kql", "//server/wire/agentapi"},
		reason: "the interface of all stores uses only the domain's types, with those of the protocol that they have, and queries",
	},
	{
		from: []string{"server/rollout/plan", "server/rollout/preview", "server/rollout/explain", "server/rollout/sequence"}, deep: true,
		to:     []string{"net", "net/http/...", "os", "os/...", "database/...", "io/fs", "log", "log/slog", "syscall", "sync", "context"},
		reason: "they depend only on their arguments, so that preview, reconciler and explanation agree",
	},
	{
		from: []string{"server/rollout/plan"}, to: []string{"//server/..."}, only: []string{"//server/fleet", "//server/kql", "//server/wire/agentapi"},
		reason: "preview, reconciler and explanation call the same pure functions, so they agree",
	},
	{
		from: []string{"server/rollout/preview", "server/rollout/explain", "server/rollout/sequence"}, to: []string{"//server/..."}, only: []string{"//server/rollout/plan", "//server/fleet", "//server/wire/agentapi"},
		reason: "the service reads the fleet and the documents and passes them to these packages",
	},
	{
		from: []string{"server/rollout/reconcile"}, to: []string{"//server/rollout", "//server/rollout/..."}, only: []string{"//server/rollout/plan", "//server/rollout/action"},
		reason: "the reconciler executes the decisions of plan; it learns of operators' commands from the rollout's document",
	},
	{
		from: []string{"server/rollout"}, to: []string{"//server/rollout/reconcile"},
		reason: "service and reconciler share only the rollout's document and a wake-up signal, and may run in different processes",
	},
	{
		from: []string{"watcher/watch"}, to: []string{"net", "net/...", "os", "os/...", "syscall", "math/rand/..."},
		reason: "the host is a parameter (watcher/host is the real one), so that a test can fail each call",
	},

	// Adapters import the domain, and the domain imports no adapter.
	{
		from: domain, unless: []string{"server/rollout/fleettest"}, // which opens a store, as the tests that use it would
		to:     []string{"//server/api/httpapi", "//server/api/admin", "//server/api/agents", "//server/store/elastic", "//server/store/sqlite/...", "//server/store/migrate", "//server/cli/...", "//server/app", "//server/api/adminapi", "//ui/...", "database/..."},
		reason: "the domain does not depend on the API or the store",
	},
	{
		from: []string{"server/store/elastic", "server/store/sqlite/...", "server/store/migrate", "server/store/storetest"}, to: []string{"//..."},
		only:   []string{"//server/store", "//server/store/...", "//server/fleet", "//server/kql", "//server/wire/agentapi"},
		reason: "a store writes and finds documents; their meaning is decided in the domain",
	},
	{
		from: []string{"..."}, unless: []string{"server/cli", "server/store/sqlite", "testing/kit/simfleet", support}, to: []string{"//server/store/sqlite"},
		reason: "the store is chosen in one place, where the configuration is read; everything else takes a store.Store",
	},
	{
		from: []string{"server/api/agents"}, to: []string{"//server/api/adminapi", "//server/api/admin"},
		reason: "agents and operators have different listeners, credentials and versions: neither API is made of the other",
	},
	{
		from: []string{"server/api/admin"}, to: []string{"//server/api/agents"},
		reason: "agents and operators have different listeners, credentials and versions: neither API is made of the other",
	},
	{
		from: []string{"server/api/httpapi"}, to: []string{"//..."}, only: []string{"//server/fleet", "//server/fleet/strict", "//server/wire/agentapi"},
		reason: "it has what both APIs share: errors of authentication, limits, the table from error kind to status",
	},
	{
		from: []string{"server/app"}, to: []string{"//server/cli/..."},
		reason: "several servers run in one test process, so a server gets its configuration and reads no flags",
	},
	{
		from: []string{"server/cli/packagecmd"}, to: []string{"//server/..."},
		reason: "a publisher's commands work without any server",
	},
	{
		from: []string{"server"}, to: []string{"//..."}, only: []string{"//server/cli"},
		reason: "main only starts the command line",
	},
	{
		from: []string{"agent/..."}, unless: []string{"agent", "agent/setup", "agent/daemon"}, to: []string{"//agent/daemon", "//agent/setup"},
		reason: "daemon assembles the parts; a part that imported it could not be tested alone",
	},
	{
		from: []string{"agent/foreign"}, to: []string{"//..."}, only: []string{"//packaging/host/disk"},
		reason: "it decides which names root may follow, for any part of the agent",
	},
	{
		from: []string{"agent/steps"}, to: []string{"//..."}, only: []string{"//packaging/host/disk"},
		reason: "it executes steps of any kind, for upgrades and components",
	},
	{
		from: []string{"agent/download", "agent/gateway", "agent/queue", "agent/identity", "agent/backoff"}, to: []string{"//agent/..."}, only: []string{"//agent/backoff", "//agent/request"},
		reason: "each is a part with one task; agent/daemon assembles them",
	},

	{
		from: []string{"agent/runtime/process"}, to: []string{"//agent/..."}, only: []string{"//agent/runtime", "//agent/foreign", "//agent/backoff", "//agent/logfile"},
		reason: "an adapter knows the interface of adapters, not who calls it nor the other ones",
	},

	// Libraries are used in few packages.
	only("github.com/gin-gonic/gin", "only the HTTP APIs route; the load test measures a bare gin server", "server/api/httpapi", "server/api/admin", "server/api/agents", "testing/tools/loadtest/scenario"),
	only("modernc.org/sqlite", "one store is SQLite; the rest must not notice", "server/store/sqlite"),
	only("database/sql", "one store is SQLite; the rest must not notice", "server/store/sqlite", "server/store/sqlite/sqlitetest"),
	only("github.com/elastic/go-elasticsearch/v8", "one store is Elasticsearch; the rest must not notice", "server/store/elastic"),
	only("github.com/mholt/archiver/v4", "the library has no protection against names that escape: one package adds it", "packaging/pkg/install"),
	only("archive/...", "packages are written in one package and read in another, backups in one, a component's state and diagnostics in one each; testing/kit/docker writes images; packaging/release writes the archive, the image and the chart of the server", "agent/diagnostics", "agent/statecopy", "packaging/pkg/build", "packaging/pkg/install", "packaging/release", "packaging/release/chart", "packaging/release/image", "server/node/backup", "testing/kit/docker", "testing/kit/fakepkg"),
	only("text/template", "one package bounds what templates can do", "server/rollout/configfile"),
	only("github.com/aymanbagabas/go-udiff", "files are compared in one way, and declared objects by the command line", "server/rollout/configfile", "server/cli"),
	only("github.com/ProtonMail/go-crypto", "OpenPGP is only for Elastic's packages", "server/agents/artifact", "testing/kit/elasticpkg"),
	only("github.com/theupdateframework/go-tuf/v2", "whether bytes may be installed is decided in one package, which checks every file first", "packaging/pkg/trust/tuf"),
	only("github.com/sigstore/sigstore", "it comes with go-tuf, for its keys", "packaging/pkg/trust/tuf"),
	only("github.com/secure-systems-lab/go-securesystemslib", "it comes with go-tuf, for what exactly is signed", "packaging/pkg/trust/tuf"),
	only("github.com/kardianos/service", "only installation and restarts use the service manager", "agent", "agent/setup", "watcher/host"),
	only("github.com/coreos/go-systemd/v22", "one adapter runs components as units of systemd; the rest must not notice", "agent/runtime/systemd"),
	only("github.com/moby/moby", "one runtime of components is Docker; the rest must not notice", "agent/runtime/docker", "testing/kit/docker"),
	only("github.com/google/go-containerregistry", "the image of the server is made from its files, and tests pull images from a registry of their own", "packaging/release/image", "testing/kit/docker"),
	only("github.com/spf13/cobra", "flags end at the programs; packaging/release writes the manual from them, and testing/tools/reference a page", "agent", "packaging/release", "server/cli/...", "testing/tools/reference", "testing/kit/flaghelp", "testing/tools/loadtest"),
	only("github.com/spf13/pflag", "flags end at the programs", "agent", "server/cli/...", "testing/kit/flaghelp"),
	only("github.com/hashicorp/go-version", "versions are compared in one way, by packaging/pkg/manifest", "packaging/pkg/manifest"),
	only("gopkg.in/yaml.v3", "YAML is only for files that people write: manifests, configurations, the specification of the API, and the config_yaml of an output", "packaging/pkg/manifest", "agent/config", "server/app", "server/cli/...", "packaging/pkg/yamltext", "server/api/admin", "server/agents/policy", "server/fleet/strict", "server/rollout/spec", "server/api/adminapi", "server/rollout/upgrademanifest", "testing/tools/crd", "testing/tools/openapi"),
	only("github.com/prometheus/client_golang", "one package has the metrics; the others publish events", "server/insight/metrics"),
	only("github.com/HdrHistogram/hdrhistogram-go", "a distribution is generator.Latency, which can be merged from several processes", "testing/tools/loadtest/generator"),
	only("log", "one way to log: log/slog, with attributes", support),
	only("io/ioutil", "os and io have all its functions"),
	only("math/rand", "use math/rand/v2, which has no shared seed, or crypto/rand for secrets"),
	only("github.com/pkg/errors", "the standard errors package wraps"),
	only("unsafe", "one package modifies crypto/tls connections, which halves the memory of a parked agent; nothing else needs it", "server/agents/checkin/tlstrim"),
	only("github.com/google/pprof", "only the load test reads profiles", "testing/tools/loadtest/scenario"),
	only("C", "programs are built with CGO_ENABLED=0, so that one file runs on every Linux"),
}

// support is the pattern of packages for tests outside testing, such as storetest and
// parktest. Their names end in test.
const support = "<support>"

func isSupport(dir string) bool {
	return strings.HasSuffix(dir, "test") && area(dir) != "testing"
}

// matches reports whether an import path or a folder matches one of the patterns: it is
// equal, or with "/..." it is below.
func matches(name string, patterns []string) bool {
	for _, p := range patterns {
		switch top, below := strings.CutSuffix(p, "..."); {
		case !below && name == p, p == "...", p == support && isSupport(strings.TrimPrefix(name, ours)):
			return true
		case below && strings.HasPrefix(name+"/", top):
			return true
		}
	}
	return false
}

// area returns the area of a folder, or "" for the root.
func area(dir string) string {
	top, _, _ := strings.Cut(path.Clean(dir), "/")
	if top == "." {
		return ""
	}
	return top
}
