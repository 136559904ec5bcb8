package tidy

import (
	"path"
	"strings"
)

// areas is the import table: a top folder, and what its code may import from the
// others. The README's import map says the same; a test compares the two. Tests
// may import testing besides.
var areas = []row{
	{"packaging", nil, "packages are built and judged by publishers who have no server and no agent"},
	{"watcher", []string{"packaging", "server/agentapi"}, "the watcher must work when the agent it judges does not: it shares no code that decides anything with it"},
	{"agent", []string{"packaging", "watcher/handoff", "watcher/probe", "watcher/beacon", "server/agentapi"}, "what the agent links runs on every host: of the others it takes formats only"},
	{"server", []string{"packaging", "ui"}, "the server knows agents and watchers by what they say on the wire"},
	{"ui", nil, "the UI is a client of the admin API; the server embeds it, not the other way round"},
	{"testing", []string{"packaging", "watcher", "agent", "server", "ui"}, ""},
}

type row struct {
	from   string
	to     []string
	reason string
}

// A ban keeps imports out of packages. Patterns are folders of this repository,
// "/..." meaning what is below too, or import paths of others.
type ban struct {
	// from is whom the ban binds; unless is who may all the same.
	from, unless []string
	// to is what they must not import. Only lists what of it they may.
	to, only []string
	// deep also looks at what is imported through packages of this repository.
	deep bool
	// tests binds test files too.
	tests  bool
	reason string
}

var shipped = []string{"packaging/...", "watcher/...", "agent/...", "server/...", "ui/..."}

// domain is the part of the server that knows nouns and rules, not technology.
var domain = []string{
	"server/access/...", "server/action/...", "server/artifact/...", "server/authority/...", "server/beacon/...", "server/checkin/...", "server/enrollment/...", "server/event/...",
	"server/fleet/...", "server/incident/...", "server/kql/...", "server/lease/...", "server/policy/...", "server/rollout/...", "server/store",
	"server/upgrademanifest/...", "server/webhook/...",
}

// only says that one library has its places and is used nowhere else.
func only(library, reason string, places ...string) ban {
	to := []string{library}
	if strings.Contains(library, ".") {
		to = append(to, library+"/...") // a module; of the standard library only what is named
	}
	return ban{from: []string{"..."}, unless: places, to: to, reason: reason}
}

var bans = []ban{
	{
		from: shipped, unless: []string{support}, to: []string{"//testing/...", "testing", "testing/..."}, deep: true,
		reason: "no helper of a test belongs in a program that runs on somebody's host",
	},
	{
		from: []string{"..."}, unless: []string{support, "testing/esnode"}, to: []string{"//testing/require", "go.uber.org/goleak", "pgregory.net/rapid"},
		reason: "they fail or skip a test: they are for _test.go files, support packages, and the node that many suites need",
	},
	{
		from: shipped, unless: []string{support}, to: []string{support}, deep: true,
		reason: "a package whose name ends in test is a suite or a fixture: tests import it",
	},

	// Formats that outlive a process.
	{
		from: []string{"server/agentapi/..."}, to: []string{"//..."}, only: []string{"//server/agentapi/..."}, tests: true,
		reason: "the agent links it, and other servers' agents are read by it: a format depends on nothing that may change",
	},
	{
		from: []string{"server/adminapi"}, to: []string{"//..."}, tests: true,
		reason: "it is generated from openapi.yaml, which is all a client needs to know",
	},
	{
		from: []string{"packaging/layout"}, to: []string{"//..."},
		reason: "it holds names only, so that whatever runs on a host can take them from here",
	},
	{
		from: []string{"packaging/manifest", "packaging/disk", "packaging/trust"}, to: []string{"//..."}, only: []string{"//packaging/layout"},
		reason: "each answers one question (what is in it, how is it written, may it be installed) apart from the others",
	},
	{
		from: []string{"packaging/trust"}, to: []string{"net", "net/...", "os", "os/...", "io/fs"}, deep: true,
		reason: "it decides about bytes it is given: who fetches or opens them must not be able to weaken the decision",
	},
	{
		from: []string{"packaging/trust/tuf"}, to: []string{"//..."}, only: []string{"//packaging/trust", "//packaging/disk", "//packaging/manifest"},
		reason: "it decides as packaging/trust does, and besides keeps what it verified on disk and knows archives by their names",
	},
	{
		from: []string{"packaging/trust/tuf"}, to: []string{"net", "net/...", "os", "os/..."},
		reason: "who fetches is handed in, and every call to the disk has a label, so that a test can fail it",
	},
	{
		from: []string{"watcher/handoff"}, to: []string{"//..."}, only: []string{"//packaging/disk", "//packaging/layout", "//packaging/manifest"},
		reason: "an old watcher and a new agent meet over it: the whole format is in one place",
	},
	{
		from: []string{"watcher/beacon"}, to: []string{"//..."}, only: []string{"//packaging/disk", "//packaging/layout", "//server/agentapi/..."},
		reason: "the agent links it to write the watcher's credential, and links no watcher with it",
	},
	{
		from: []string{"watcher/probe"}, to: []string{"//..."}, only: []string{"//packaging/manifest"},
		reason: "an old watcher asks a new agent through it: the whole format is in one place",
	},

	{
		from: []string{"watcher/..."}, unless: []string{"watcher/beacon", "watcher/report"}, to: []string{"//server/..."},
		reason: "two packages speak to the server, in the wire types of both ends; the verdict knows only that something is told",
	},

	// Decide in pure functions.
	{
		from: []string{"server/fleet", "server/kql"}, deep: true,
		to:     []string{"net", "net/...", "os", "os/...", "database/...", "io/fs", "io/ioutil", "log", "log/slog", "syscall", "sync", "context"},
		reason: "nouns and rules decide with what they are given: a preview, a simulation and a test then give what really happens",
	},
	{
		from: []string{"server/store"}, to: []string{"//..."}, only: []string{"//server/fleet", "//server/kql"},
		reason: "the contract is between the domain and every store, in the domain's nouns and queries",
	},
	{
		from: []string{"server/rollout/plan", "server/rollout/preview", "server/rollout/explain"}, deep: true,
		to:     []string{"net", "net/http/...", "os", "os/...", "database/...", "io/fs", "log", "log/slog", "syscall", "sync", "context"},
		reason: "they decide with what they are given: a preview, the reconciler and an explanation then say the same",
	},
	{
		from: []string{"server/rollout/plan"}, to: []string{"//server/..."}, only: []string{"//server/fleet", "//server/kql", "//server/agentapi"},
		reason: "what a rollout does is decided from its arguments: a preview, the reconciler and an explanation call the same functions and cannot disagree",
	},
	{
		from: []string{"server/rollout/preview", "server/rollout/explain"}, to: []string{"//server/..."}, only: []string{"//server/rollout/plan", "//server/fleet", "//server/agentapi"},
		reason: "each is handed the fleet or the documents it speaks of: the service reads them",
	},
	{
		from: []string{"server/rollout/reconcile"}, to: []string{"//server/rollout", "//server/rollout/..."}, only: []string{"//server/rollout/plan"},
		reason: "the reconciler carries out what plan decides; operators change the rollout's document and it reads that",
	},
	{
		from: []string{"server/rollout"}, to: []string{"//server/rollout/reconcile"},
		reason: "service and reconciler meet in the rollout's document, and may run in different processes; all that is handed over is a wake-up function",
	},
	{
		from: []string{"watcher/watch"}, to: []string{"net", "net/...", "os", "os/...", "syscall", "math/rand/..."},
		reason: "the host is handed in (watcher/host is the real one), so that a test can fail each call",
	},

	// Adapters know the domain, the domain knows no adapter.
	{
		from:   domain,
		to:     []string{"//server/httpapi/...", "//server/store/...", "//server/cli/...", "//server/replica", "//server/adminapi", "//ui/...", "database/..."},
		only:   []string{"//server/store"},
		reason: "the domain is the same behind another API and another store",
	},
	{
		from: []string{"server/store/..."}, unless: []string{"server/store"}, to: []string{"//..."},
		only:   []string{"//server/store", "//server/store/...", "//server/fleet", "//server/kql", "//server/agentapi"},
		reason: "a store keeps documents and finds them; what they mean is decided above it",
	},
	{
		from: []string{"..."}, unless: []string{"server/cli", "server/store/sqlite", support}, to: []string{"//server/store/sqlite"},
		reason: "the store is chosen in one place, where the configuration is read; everything else takes a store.Store",
	},
	{
		from: []string{"server/httpapi/agents"}, to: []string{"//server/adminapi", "//server/httpapi/admin"},
		reason: "agents and operators have different listeners, credentials and versions: neither API is made of the other",
	},
	{
		from: []string{"server/httpapi/admin"}, to: []string{"//server/httpapi/agents"},
		reason: "agents and operators have different listeners, credentials and versions: neither API is made of the other",
	},
	{
		from: []string{"server/httpapi"}, to: []string{"//..."}, only: []string{"//server/fleet", "//server/agentapi"},
		reason: "it holds what both APIs share: authentication's errors, limits, one table from error kind to status",
	},
	{
		from: []string{"server/replica"}, to: []string{"//server/cli/..."},
		reason: "several replicas run in one test process: a replica is handed its configuration, it reads no flags",
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
		reason: "daemon puts the parts together; a part that knew it could not be tested alone",
	},
	{
		from: []string{"agent/steps"}, to: []string{"//..."}, only: []string{"//packaging/disk"},
		reason: "it carries out steps of any kind: what they are of, an upgrade or a component, is its callers' business",
	},
	{
		from: []string{"agent/download", "agent/gateway", "agent/queue", "agent/identity", "agent/backoff"}, to: []string{"//agent/..."}, only: []string{"//agent/backoff"},
		reason: "each is a part with one task; agent/daemon joins them",
	},

	// Libraries have their place.
	only("github.com/gin-gonic/gin", "gin routes; behind it are functions that know no router. The load generator measures a bare server of it", "server/httpapi/...", "testing/horde/scenario"),
	only("modernc.org/sqlite", "one store is SQLite; the rest must not notice", "server/store/sqlite"),
	only("database/sql", "one store is SQLite; the rest must not notice", "server/store/sqlite"),
	only("github.com/elastic/go-elasticsearch/v8", "one store is Elasticsearch; the rest must not notice", "server/store/elastic"),
	only("github.com/mholt/archiver/v4", "the library has no protection against names that escape: one package adds it", "packaging/install"),
	only("archive/...", "what is written and what is read of archives is in two packages", "packaging/build", "packaging/install", "testing/fakepkg"),
	only("aead.dev/minisign", "whether bytes may be installed is decided in one package", "packaging/trust"),
	only("github.com/theupdateframework/go-tuf/v2", "whether bytes may be installed is decided in one package, which looks every file over first", "packaging/trust/tuf"),
	only("github.com/sigstore/sigstore", "it comes with go-tuf, for its keys", "packaging/trust/tuf"),
	only("github.com/secure-systems-lab/go-securesystemslib", "it comes with go-tuf, for what exactly is signed", "packaging/trust/tuf"),
	only("github.com/kardianos/service", "the service manager is asked by those who install and by those who restart", "agent", "agent/setup", "watcher/host"),
	only("github.com/spf13/cobra", "flags end at the programs", "agent", "server/cli/...", "testing/horde/load"),
	only("github.com/spf13/pflag", "flags end at the programs", "agent", "server/cli/..."),
	only("github.com/hashicorp/go-version", "versions are compared in one way, by packaging/manifest", "packaging/manifest"),
	only("gopkg.in/yaml.v3", "YAML is for files that people write: manifests and configurations", "packaging/manifest", "agent/config", "server/replica", "server/cli/...", "server/policy", "server/upgrademanifest"),
	only("github.com/prometheus/client_golang", "one place counts for Prometheus; the others publish events", "server/metrics"),
	only("github.com/HdrHistogram/hdrhistogram-go", "a distribution is herd.Latency, which joins those of several processes", "testing/horde/herd"),
	only("log", "one way to log: log/slog, with attributes", support),
	only("io/ioutil", "os and io have all of it"),
	only("math/rand", "math/rand/v2 has no shared seed; where a secret is made, crypto/rand"),
	only("github.com/pkg/errors", "the standard errors package wraps"),
	only("unsafe", "one package reaches into crypto/tls, for half of a parked agent's memory; nothing else needs it", "server/checkin/tlstrim"),
	only("github.com/google/pprof", "profiles are read by the load generator alone", "testing/horde/scenario"),
	only("C", "programs are built with CGO_ENABLED=0: one file that runs on every Linux"),
}

// support is the pattern of packages that exist for tests and lie beside what
// they test: storetest, parktest. Their names end in test.
const support = "<support>"

func isSupport(dir string) bool {
	return strings.HasSuffix(dir, "test") && area(dir) != "testing"
}

// matches says whether an import path or a folder is meant by one of the
// patterns: itself, or with "/..." what is below it too.
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

// area is the table's row for a folder, or "" for the root.
func area(dir string) string {
	top, _, _ := strings.Cut(path.Clean(dir), "/")
	if top == "." {
		return ""
	}
	return top
}
