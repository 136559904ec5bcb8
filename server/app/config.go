package app

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/muster-fleet/muster/server/agents/limit"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/fleet/strict"
	"github.com/muster-fleet/muster/server/insight/webhook"
	"github.com/muster-fleet/muster/server/node/debug"
	"github.com/muster-fleet/muster/server/rollout/plan"
)

// Config is the server's configuration file. Every key may be left out.
type Config struct {
	// File is the path of the file that was read; empty if there is none.
	File string `yaml:"-"`
	// Origins has where the values of keys come from; a key that is not there has its default.
	Origins map[string]Origin `yaml:"-"`
	// Data is the folder of all files of the server.
	Data string `yaml:"data"`
	// Upgrades is the folder of upgrade manifests, <profile>/<id>.yaml; empty means the
	// folder upgrades in Data.
	Upgrades string `yaml:"upgrades"`

	Store      StoreConfig      `yaml:"store"`
	Agents     AgentsConfig     `yaml:"agents"`
	Admin      AdminConfig      `yaml:"admin"`
	TLS        TLSConfig        `yaml:"tls"`
	Check      CheckinConfig    `yaml:"checkin"`
	Enrollment EnrollmentConfig `yaml:"enrollment"`
	Rollouts   RolloutsConfig   `yaml:"rollouts"`
	Webhooks   WebhooksConfig   `yaml:"webhooks"`
	Limits     limit.Config     `yaml:"limits"`
	Debug      DebugConfig      `yaml:"debug"`
	Log        LogConfig        `yaml:"log"`
}

// StoreConfig selects the store of documents. The zero value is one SQLite file in Data.
type StoreConfig struct {
	Elasticsearch *ElasticsearchConfig `yaml:"elasticsearch"`
}

// ElasticsearchConfig is how to reach the Elasticsearch that servers share. A secret may
// be in a file of its own instead, or in the environment; see Secrets.
type ElasticsearchConfig struct {
	Hosts  []string `yaml:"hosts"`
	Prefix string   `yaml:"prefix"` // of the indices' names; empty means muster-

	Username         string `yaml:"username"`
	Password         string `yaml:"password"`
	PasswordFile     string `yaml:"password_file"`
	APIKey           string `yaml:"api_key"`
	APIKeyFile       string `yaml:"api_key_file"`
	ServiceToken     string `yaml:"service_token"`
	ServiceTokenFile string `yaml:"service_token_file"`

	CA            string `yaml:"ca"` // a PEM file
	CAFingerprint string `yaml:"ca_fingerprint"`
	Certificate   string `yaml:"certificate"` // PEM files of the client certificate and its key; both or neither
	Key           string `yaml:"key"`
}

// Secrets returns the credentials for Elasticsearch: each from its key of the
// configuration, else from its file, else from its environment variable
// (MUSTER_ELASTICSEARCH_PASSWORD, _API_KEY, _SERVICE_TOKEN).
func (c *ElasticsearchConfig) Secrets() (password, apiKey, serviceToken string, err error) {
	var errs []error
	secret := func(name, value, file string) string {
		switch {
		case value != "":
			return value
		case file == "":
			return os.Getenv("MUSTER_ELASTICSEARCH_" + strings.ToUpper(name))
		}
		b, err := os.ReadFile(file)
		if err != nil {
			errs = append(errs, fmt.Errorf("store.elasticsearch.%s_file: %w", name, err))
		}
		return strings.TrimSpace(string(b))
	}
	password = secret("password", c.Password, c.PasswordFile)
	apiKey = secret("api_key", c.APIKey, c.APIKeyFile)
	serviceToken = secret("service_token", c.ServiceToken, c.ServiceTokenFile)
	return password, apiKey, serviceToken, errors.Join(errs...)
}

func (c *ElasticsearchConfig) check(bad func(key, format string, args ...any)) {
	if c == nil {
		return
	}
	const key = "store.elasticsearch."
	if len(c.Hosts) == 0 {
		bad(key+"hosts", "is empty: name at least one node, such as https://es1.example.com:9200")
	}
	for _, s := range []struct{ name, value, file string }{
		{"password", c.Password, c.PasswordFile}, {"api_key", c.APIKey, c.APIKeyFile}, {"service_token", c.ServiceToken, c.ServiceTokenFile},
	} {
		if s.value != "" && s.file != "" {
			bad(key+s.name, "is in the configuration and in %s: leave one out", s.file)
		}
	}
	if (c.Certificate == "") != (c.Key == "") {
		bad(key+"certificate", "goes together with key: give both or neither")
	}
}

// AgentsConfig is the listener that agents connect to.
type AgentsConfig struct {
	Listen string `yaml:"listen"`
	// URL is the address for agents; empty means one made from the host's name and
	// Listen.
	URL string `yaml:"url"`
}

// AdminConfig is the listener of the admin API and the UI.
type AdminConfig struct {
	Listen string `yaml:"listen"`
	URL    string `yaml:"url"`
	// KibanaVersion is the version that clients of Kibana's Fleet API read at /api/status.
	KibanaVersion string `yaml:"kibana_version"`
	// RemovalsPerHour is how many agents operators may unenrol, migrate or move to another
	// policy or server within an hour; 0: 25, or a tenth of the fleet if that is more.
	RemovalsPerHour int `yaml:"removals_per_hour"`
}

// TLSConfig selects the server's certificate.
type TLSConfig struct {
	// Names are added to those of the machine and of the two URLs.
	Names []string `yaml:"names"`
	// Certificate and Key replace the server's own CA; both or neither.
	Certificate string `yaml:"certificate"`
	Key         string `yaml:"key"`
}

// CheckinConfig is the long poll.
type CheckinConfig struct {
	Poll       time.Duration `yaml:"poll"`
	PollJitter time.Duration `yaml:"poll_jitter"`
}

// EnrollmentConfig is about enrollment keys.
type EnrollmentConfig struct {
	// ReadableKeys keeps the secrets of new keys encrypted, so that operators can read them
	// again; otherwise the store has only their hashes.
	ReadableKeys bool `yaml:"readable_keys"`
	// DefaultKeys gives each policy a key named Default, which clients of Kibana look for.
	DefaultKeys bool `yaml:"default_keys"`
}

// RolloutsConfig is about rollouts.
type RolloutsConfig struct {
	Defaults RolloutDefaults `yaml:"defaults"`
}

// RolloutDefaults are for fields that the plans of rollouts leave out.
type RolloutDefaults struct{ plan.Defaults }

// rolloutDefaults is their key.
const rolloutDefaults = "rollouts.defaults"

// UnmarshalYAML reads them by the names and the types of a plan in JSON, as files of plans are read.
func (d *RolloutDefaults) UnmarshalYAML(n *yaml.Node) error {
	v, err := strict.Typed(n)
	if err != nil {
		return err
	}
	_, faults := v.Into(&d.Defaults, strict.Options{})
	problems := &yaml.TypeError{}
	for _, f := range faults {
		problems.Errors = append(problems.Errors, fmt.Sprintf("line %d: %s %s", cmp.Or(f.Line, n.Line), strings.TrimSuffix(rolloutDefaults+"."+f.Path, "."), f.Text))
	}
	if len(faults) == 0 {
		return nil
	}
	return problems
}

func (d RolloutDefaults) check(bad func(key, format string, args ...any)) {
	err := d.Check()
	var refused *fleet.Error
	switch {
	case errors.As(err, &refused):
		bad(rolloutDefaults+"."+refused.Field, "%s", refused.Message)
	case err != nil:
		bad(rolloutDefaults, "%s", err)
	}
}

// WebhooksConfig is what webhooks may reach.
type WebhooksConfig struct {
	// Allow are networks, addresses and names of hosts inside the network; addresses of
	// the internet are always allowed.
	Allow []string `yaml:"allow"`
}

func (c WebhooksConfig) allowed() (webhook.Allowed, error) {
	var a webhook.Allowed
	for i, entry := range c.Allow {
		if err := a.Add(entry); err != nil {
			return a, fmt.Errorf("webhooks.allow[%d]: %w", i, err)
		}
	}
	return a, nil
}

// DebugConfig is the listener that serves profiles of the running process.
type DebugConfig struct {
	// Listen is a loopback address; empty means no listener.
	Listen string `yaml:"listen"`
}

// LogConfig is the log on standard error.
type LogConfig struct {
	Level slog.Level `yaml:"level"`
}

// Example is a configuration file with every key, its default and its meaning.
const Example = `# Muster server. Every key may be left out; the values here are the defaults.

# data: /var/lib/muster     # folder of all files of the server: store, CA, packages.
                            # For users other than root and the owner of this folder: ~/.local/share/muster
# upgrades: /etc/muster/upgrades   # folder of upgrade manifests, <profile>/<id>.yaml, read when a rollout names one;
                            # without it, the folder upgrades in data. All servers need the same files

# store:                    # without it, one SQLite file in data
#   elasticsearch:          # 8 or 9; several servers may share it
#     hosts: ["https://es1.example.com:9200"]
#     prefix: muster-       # of the names of the indices
#     username: muster      # with password or password_file; or api_key, or service_token, each with its _file.
#     password_file: /etc/muster/es.password   # or MUSTER_ELASTICSEARCH_PASSWORD, _API_KEY, _SERVICE_TOKEN
#     ca: /etc/muster/es-ca.pem                # or ca_fingerprint: the SHA-256 of the authority's certificate
#     certificate: /etc/muster/es-client.pem   # client certificate, with key
#     key: /etc/muster/es-client.key
                            # To add a server: before its first start copy this file, and the folders tls and trust from a
                            # running server's data folder into the new one's (agents pin the CA); then start it

agents:
  listen: ":8220"           # where agents connect
  # url: https://fleet.example.com:8220   # the address for agents, to which their policies send them; without it, made from the host's name
admin:
  listen: ":8221"           # admin API and web UI. Probes ask GET /readyz, without a key: 200, or 503 with the reason while the store
                            # does not answer or the server shuts down
  # url: https://fleet.example.com:8221
  kibana_version: 9.1.0     # the version that clients of Kibana's Fleet API read at /api/status; some want the version of their agents
  removals_per_hour: 0      # how many agents may be unenrolled, migrated or moved to another policy or server within an hour by orders for several
                            # agents or changes of their servers; more need override_limit and a reason. 0: 25, or a tenth of the fleet if that is more
tls:
  names: []                 # more names and addresses for the server's certificate
  # certificate: /etc/muster/server.pem   # your own chain instead of the server's CA; agents pin its last certificate.
  # key: /etc/muster/server.key           # When the files are replaced, both listeners serve the new certificate within a second. One
                            # that cannot be used, or without the certificate that agents pin, is logged and changes nothing
checkin:
  poll: 5m                  # how long a check-in with nothing to do is held open
  poll_jitter: 30s          # a random part of it is subtracted, so that agents do not all poll at once
enrollment:
  readable_keys: true       # operators can read an enrollment key's token again, as in Kibana: the store keeps it encrypted, under
                            # the key in trust/encryption-key. false: no token is shown again, and of new keys only a hash is kept
  default_keys: false       # true: each policy has a key "Default", as in Kibana. Terraform's data source for enrollment tokens and
                            # the container of Elastic's agent look for it. A token without an end that nobody asked for is a risk
rollouts:
  defaults: {}              # values of fields that the plan of a rollout leaves out, by the names of the plan, such as
                            # {limits: {max_parallel: 50}, health: {wait: 20m}, failure: {count: 5}, strategy: {canary: {size: 5}}}.
                            # A field that the rollout's strategy does not have is left out for it. Fleets that are declared keep
                            # their own defaults. All servers of a store need the same
webhooks:
  allow: []                 # networks (10.0.0.0/8), addresses and names of hosts (chat.corp.example) inside the network that webhooks
                            # may reach. Without it they reach the internet only: not loopback, link-local, private and shared
                            # addresses, nor the clouds' metadata services. They use no proxy
limits:                     # 0: derived from this machine; /api/status of the admin API shows the values
  max_agents: 0             # connections of agents; bounded by memory and by the files that the process may open (LimitNOFILE)
  max_handshakes: 0         # TLS handshakes in progress at once, 36 for each processor; more connections wait. One address, as a
                            # load balancer's, has 32 of them at most. Raise it for networks with long round trips
  handshakes_per_second: 0  # three quarters of the processors' time, measured at the start; the rest is for everything else
  max_checkins: 0           # check-ins in progress at once, 16 for each processor; parked ones do not count. More wait 5 s and are
                            # then answered 429. Raise it, and the next two, if Elasticsearch answers slowly
  max_reports: 0            # the same for acknowledgements and beacons, 64 for each processor
  max_enrollments: 0        # for enrolments, 64 for each processor
  max_downloads: 0          # for downloads of packages
  enrollments_per_second: 0 # how many hosts one enrollment token enrols in a second: 100, and 1,000 at once. More are answered 429
  enrollments_per_hour: 0   # and in an hour: 20,000. Raise it to enrol a larger fleet with one token
  memory_bytes: 0           # memory that the server may use; by default the machine's or the container's.
                            # GOMEMLIMIT is set to 90 % of it unless the environment sets it
debug:
  listen: ""                # 127.0.0.1:6060 serves profiles at http://127.0.0.1:6060/debug/pprof/, without a key: loopback only
log:
  level: info               # debug, info, warn or error
`

// defaultKibanaVersion is the version of Kibana whose Fleet API the admin API is.
const defaultKibanaVersion = "9.1.0"

var kibanaVersion = regexp.MustCompile(`^\d+\.\d+\.\d+(-SNAPSHOT)?$`)

// Defaults returns the configuration of an empty file.
func Defaults() Config {
	return Config{
		Data:       defaultData(),
		Agents:     AgentsConfig{Listen: ":8220"},
		Admin:      AdminConfig{Listen: ":8221", KibanaVersion: defaultKibanaVersion},
		Check:      CheckinConfig{Poll: 5 * time.Minute, PollJitter: 30 * time.Second},
		Enrollment: EnrollmentConfig{ReadableKeys: true},
	}
}

// minPoll is the shortest long poll: with shorter ones a server does little but answer.
const minPoll = 100 * time.Millisecond

// systemData is the data folder of a server that belongs to the system.
const systemData = "/var/lib/muster"

func defaultData() string {
	if os.Geteuid() == 0 || belongsToUser(systemData) {
		return systemData
	}
	if dir := os.Getenv("XDG_DATA_HOME"); dir != "" {
		return filepath.Join(dir, "muster")
	}
	if home, err := os.UserHomeDir(); err == nil {
		return filepath.Join(home, ".local", "share", "muster")
	}
	return "muster-data"
}

// belongsToUser reports whether a folder is one that only this user can read, as that of the user
// whom the server's package creates.
func belongsToUser(dir string) bool {
	fi, err := os.Stat(dir)
	if err != nil || fi.Mode().Perm()&0o077 != 0 {
		return false
	}
	_, err = os.ReadDir(dir)
	return err == nil
}

// UploadsDir returns the folder of the files that agents send.
func (c Config) UploadsDir() string { return filepath.Join(c.Data, "uploads") }

// PackagesDir returns the folder of the bytes of packages.
func (c Config) PackagesDir() string { return filepath.Join(c.Data, "packages") }

// UpgradesDir returns the folder of upgrade manifests.
func (c Config) UpgradesDir() string {
	if c.Upgrades != "" {
		return c.Upgrades
	}
	return filepath.Join(c.Data, "upgrades")
}

// Load reads a configuration file. Absent keys have their defaults.
func Load(path string) (Config, error) {
	c := Defaults()
	c.File = path
	data, err := os.ReadFile(path)
	if err != nil {
		return c, fmt.Errorf("configuration: %w", err)
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return c, fmt.Errorf("configuration %s: %s (see `muster server --example-config`)", path, yamlProblem(err))
	}
	c.Origins, err = keysIn(data)
	return c, err
}

var (
	unknownKey  = regexp.MustCompile(`field (\S+) not found in type \S+`)
	notDuration = regexp.MustCompile(`cannot unmarshal !!\w+ (.*) into time\.Duration`)
	wrongValue  = regexp.MustCompile(`cannot unmarshal !!\w+ (.*) into \S+`)
)

// yamlProblem returns the message of a YAML error without the names of Go types.
func yamlProblem(err error) string {
	text := "not YAML, " + strings.TrimPrefix(err.Error(), "yaml: ")
	var t *yaml.TypeError
	if errors.As(err, &t) {
		text = strings.Join(t.Errors, "; ")
	}
	text = unknownKey.ReplaceAllString(text, "there is no key $1")
	text = notDuration.ReplaceAllString(text, "$1 is no duration, want one such as 30s")
	return wrongValue.ReplaceAllString(text, "$1 is not a value of this key")
}

// Validate checks every key.
func (c Config) Validate() error {
	var errs []error
	bad := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s", key, fmt.Sprintf(format, args...)))
	}
	if c.Data == "" {
		bad("data", "is empty: name a folder")
	}
	for _, l := range []struct{ name, listen, url string }{{"agents", c.Agents.Listen, c.Agents.URL}, {"admin", c.Admin.Listen, c.Admin.URL}} {
		if _, _, err := net.SplitHostPort(l.listen); err != nil {
			bad(l.name+".listen", "is %q, want host:port such as 0.0.0.0:8220", l.listen)
		}
		if p, err := url.Parse(l.url); l.url != "" && (err != nil || p.Scheme != "https" || p.Host == "" || strings.Trim(p.Path, "/") != "") {
			bad(l.name+".url", "is %q, want https://host:port", l.url)
		}
	}
	if !kibanaVersion.MatchString(c.Admin.KibanaVersion) {
		bad("admin.kibana_version", "is %q, want a version such as %s", c.Admin.KibanaVersion, defaultKibanaVersion)
	}
	if c.Admin.RemovalsPerHour < 0 {
		bad("admin.removals_per_hour", "is %d, want a number above 0, or 0 for 25 or a tenth of the fleet", c.Admin.RemovalsPerHour)
	}
	if (c.TLS.Certificate == "") != (c.TLS.Key == "") {
		bad("tls", "certificate and key go together: give both or neither")
	}
	if c.Check.Poll < minPoll {
		bad("checkin.poll", "is %s, want at least %s", c.Check.Poll, minPoll)
	}
	if c.Check.PollJitter < 0 || c.Check.PollJitter >= c.Check.Poll {
		bad("checkin.poll_jitter", "is %s, want less than checkin.poll (%s)", c.Check.PollJitter, c.Check.Poll)
	}
	if _, err := c.Webhooks.allowed(); err != nil {
		errs = append(errs, err)
	}
	c.Rollouts.Defaults.check(bad)
	c.Limits.Check(bad)
	if c.Debug.Listen != "" {
		if err := debug.Check(c.Debug.Listen); err != nil {
			bad("debug.listen", "%s", err)
		}
	}
	c.Store.Elasticsearch.check(bad)
	return errors.Join(errs...)
}
