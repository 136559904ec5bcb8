// Package config reads agent.yml, the settings that an operator may change on a host.
// Install writes it as a template that documents every key, and the daemon reads it at
// start. A missing key has its default, so an empty or missing file is valid.
package config

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/muster-fleet/muster/agent/download"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/host/network"
	"github.com/muster-fleet/muster/packaging/pkg/check"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/watcher/handoff"
)

// Template is the commented file that install writes.
//
//go:embed agent.yml
var Template []byte

const (
	// DefaultPollTimeout: by Fleet's rule the server answers two minutes earlier,
	// so it holds a poll for five minutes, which home routers and proxies allow.
	DefaultPollTimeout = 7 * time.Minute
	// MinPollTimeout is the server's minimum of one minute, plus time for the
	// answer.
	MinPollTimeout = 90 * time.Second
	// MaxRetries bounds the retries of one upgrade.
	MaxRetries = 20
)

// DefaultRetry begins after a minute, for a short network failure, and ends after two
// hours in all, when an operator should act.
var DefaultRetry = []time.Duration{
	time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour,
}

// Config is the content of the file.
type Config struct {
	Server  Server           `yaml:"server"`
	Network network.Settings `yaml:"network"`
	Host    Host             `yaml:"host"`
	Log     Log              `yaml:"log"`
	Upgrade Upgrade          `yaml:"upgrade"`
	Checkin Checkin          `yaml:"checkin"`
	Checks  Checks           `yaml:"checks"`
}

// Server overrides what enrolment stored.
type Server struct {
	URL string `yaml:"url"`
	// UserAgentVersion is the version that User-Agent names to a Fleet Server instead of
	// the agent's own.
	UserAgentVersion string `yaml:"user_agent_version"`
}

// Host holds the host's name.
type Host struct {
	// Name replaces the machine's host name in reports.
	Name string `yaml:"name"`
	// OnNewMachineID is what the agent does if it was enrolled on another machine.
	OnNewMachineID OnNewMachineID `yaml:"on_new_machine_id"`
	// EnrollmentTokenFile holds the token for EnrollNewMachine.
	EnrollmentTokenFile string `yaml:"enrollment_token_file"`
}

// OnNewMachineID is what an agent does whose machine has another id than where it was enrolled.
type OnNewMachineID string

// Values of OnNewMachineID.
const (
	ReportNewMachine OnNewMachineID = "report"
	EnrollNewMachine OnNewMachineID = "enroll"
	AcceptNewMachine OnNewMachineID = "accept"
)

// Log holds the settings of the agent's log.
type Log struct {
	Level slog.Level `yaml:"level"`
}

// Upgrade holds the settings of upgrades.
type Upgrade struct {
	// Retry holds the waits before the retries of one upgrade.
	Retry []time.Duration `yaml:"retry"`
	// KeepPrevious is how long the previous version stays on the host for a
	// rollback.
	KeepPrevious time.Duration `yaml:"keep_previous"`
	Keep         Keep          `yaml:"keep"`
	Watch        Watch         `yaml:"watch"`
	Download     Download      `yaml:"download"`
}

// Limits returns the limits of the versions on the host.
func (u Upgrade) Limits() handoff.Limits {
	bytes, _ := parseSize(u.Keep.Size) // Parse has checked it
	return handoff.Limits{Previous: u.Keep.Previous, Staged: u.Keep.Staged, Bytes: bytes, Window: handoff.Duration(u.KeepPrevious)}
}

// Keep bounds the versions on the host besides the one that runs; see handoff.Limits.
type Keep struct {
	Previous int `yaml:"previous"`
	Staged   int `yaml:"staged"`
	// Size is in bytes, also as 500MB or 4GB.
	Size string `yaml:"size"`
}

// Watch holds the watcher's settings, which are copied into the marker when an upgrade
// begins.
type Watch struct {
	Interval   time.Duration `yaml:"interval"`
	Grace      time.Duration `yaml:"grace"`
	FailedFor  time.Duration `yaml:"failed_for"`
	MaxCrashes int           `yaml:"max_crashes"`
}

// Rules returns the watch settings in the marker's form.
func (w Watch) Rules() handoff.Rules {
	return handoff.Rules{
		Interval:   handoff.Duration(w.Interval),
		Grace:      handoff.Duration(w.Grace),
		FailedFor:  handoff.Duration(w.FailedFor),
		MaxCrashes: w.MaxCrashes,
	}
}

// Download holds the settings of downloads.
type Download struct {
	// RateLimit is in bytes per second; 0 means no limit.
	RateLimit int64 `yaml:"rate_limit"`
	// Sources are base URLs tried before the agent's own server.
	Sources []string `yaml:"sources"`
	// AllowHTTP lists where sources that the server names may lead by http; see
	// download.Source.
	AllowHTTP []string `yaml:"allow_http"`
}

// Checkin holds the settings of the long poll.
type Checkin struct {
	PollTimeout time.Duration `yaml:"poll_timeout"`
}

// Checks holds the settings of the checks in policies.
type Checks struct {
	// Allow lists the addresses besides loopback that checks of a policy may reach.
	Allow []string `yaml:"allow"`
}

// Policy returns what runs checks of a policy.
func (c Checks) Policy() check.Policy {
	var p check.Policy
	for _, entry := range c.Allow {
		if in, err := check.ParseAllowed(entry); err == nil { // Parse has checked it
			p.Allow = append(p.Allow, in)
		}
	}
	return p
}

// Default returns the configuration of an empty file.
func Default() Config {
	keep := handoff.DefaultLimits()
	return Config{
		Network: network.Settings{NoProxy: []string{}},
		Host:    Host{OnNewMachineID: ReportNewMachine},
		Log:     Log{Level: slog.LevelInfo},
		Upgrade: Upgrade{
			Retry:        slices.Clone(DefaultRetry),
			KeepPrevious: time.Duration(keep.Window),
			Keep:         Keep{Previous: keep.Previous, Staged: keep.Staged, Size: fmt.Sprintf("%dGB", keep.Bytes/1e9)},
			Watch: Watch{
				Interval:   handoff.DefaultInterval,
				Grace:      handoff.DefaultGrace,
				FailedFor:  handoff.DefaultFailedFor,
				MaxCrashes: handoff.DefaultMaxCrashes,
			},
			Download: Download{Sources: []string{}, AllowHTTP: []string{}},
		},
		Checkin: Checkin{PollTimeout: DefaultPollTimeout},
		Checks:  Checks{Allow: []string{}},
	}
}

const opConfig = "configuration"

// Load reads the configuration of the host under top. A missing file means the defaults.
func Load(d disk.Disk, top string) (Config, error) {
	return load(d, layout.Path(top, layout.ConfigFile))
}

func load(d disk.Disk, path string) (Config, error) {
	data, err := d.ReadFile(opConfig, path)
	if errors.Is(err, fs.ErrNotExist) {
		return Default(), nil
	}
	if err != nil {
		return Config{}, err
	}
	return Parse(path, data)
}

// Effective returns the configuration that an agent runs with: that of the file or, if the file is
// not valid, the last one that [KeepGood] has kept, or else the defaults. problem is why the file is not
// used, or nil. A host must not leave the fleet because of a typing error.
func Effective(d disk.Disk, top string) (c Config, problem error) {
	c, problem = Load(d, top)
	if problem == nil {
		return c, nil
	}
	c, err := load(d, layout.Path(top, layout.GoodConfigFile))
	if err != nil { // another version has kept it
		c = Default()
	}
	return c, problem
}

// KeepGood keeps the file for [Effective] if it is valid.
func KeepGood(d disk.Disk, top string) error {
	path, good := layout.Path(top, layout.ConfigFile), layout.Path(top, layout.GoodConfigFile)
	data, err := d.ReadFile(opConfig, path)
	if errors.Is(err, fs.ErrNotExist) {
		return d.Remove(opConfig, good)
	}
	if err != nil {
		return err
	}
	if _, err := Parse(path, data); err != nil {
		return nil //nolint:nilerror // the last valid one stays
	}
	if kept, err := d.ReadFile(opConfig, good); err == nil && bytes.Equal(kept, data) {
		return nil
	}
	return disk.WriteFile(d, opConfig, good, data, 0o600)
}

// Parse parses data over the defaults. name is the file's name for errors, which name
// line and key.
func Parse(name string, data []byte) (Config, error) {
	c := Default()
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return Config{}, fmt.Errorf("%s: %w", name, readable(err))
	}
	var root yaml.Node
	if err := yaml.Unmarshal(data, &root); err != nil {
		return Config{}, fmt.Errorf("%s: %w", name, err)
	}
	var errs []error
	for key, problem := range c.problems() {
		errs = append(errs, fmt.Errorf("%s: line %d: %s: %s", name, lineOf(&root, key), key, problem))
	}
	return c, errors.Join(errs...)
}

func (c Config) problems() map[string]string {
	p := map[string]string{}
	if s := c.Server.URL; s != "" {
		if u, err := url.Parse(s); err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") {
			p["server.url"] = fmt.Sprintf("is %q, want https://host:port", s)
		}
	}
	if v := c.Server.UserAgentVersion; v != "" {
		if _, err := manifest.ParseVersion(v); err != nil {
			p["server.user_agent_version"] = err.Error()
		}
	}
	for key, problem := range c.Network.Problems() {
		p["network."+key] = problem
	}
	switch c.Host.OnNewMachineID {
	case ReportNewMachine, AcceptNewMachine:
	case EnrollNewMachine:
		if c.Host.EnrollmentTokenFile == "" {
			p["host.enrollment_token_file"] = "is empty: name the file with the enrollment token for host.on_new_machine_id: enroll"
		}
	default:
		p["host.on_new_machine_id"] = fmt.Sprintf("is %q, want %s, %s or %s", c.Host.OnNewMachineID, ReportNewMachine, EnrollNewMachine, AcceptNewMachine)
	}
	w := c.Upgrade.Watch
	for key, d := range map[string]time.Duration{
		"upgrade.watch.interval": w.Interval, "upgrade.watch.grace": w.Grace, "upgrade.watch.failed_for": w.FailedFor,
	} {
		if d <= 0 {
			p[key] = fmt.Sprintf("is %s, want a duration above zero such as 30s", d)
		}
	}
	if w.MaxCrashes < 0 {
		p["upgrade.watch.max_crashes"] = fmt.Sprintf("is %d, want 0 or more", w.MaxCrashes)
	}
	if len(c.Upgrade.Retry) > MaxRetries {
		p["upgrade.retry"] = fmt.Sprintf("has %d waits, want at most %d", len(c.Upgrade.Retry), MaxRetries)
	}
	for _, d := range c.Upgrade.Retry {
		if d <= 0 {
			p["upgrade.retry"] = fmt.Sprintf("holds %s, want durations above zero such as 5m", d)
		}
	}
	if c.Upgrade.KeepPrevious < 0 {
		p["upgrade.keep_previous"] = fmt.Sprintf("is %s, want 0 or more", c.Upgrade.KeepPrevious)
	}
	k := c.Upgrade.Keep
	if k.Previous < 1 {
		p["upgrade.keep.previous"] = fmt.Sprintf("is %d, want 1 or more: an upgrade can always be rolled back", k.Previous)
	}
	if k.Staged < 0 {
		p["upgrade.keep.staged"] = fmt.Sprintf("is %d, want 0 or more", k.Staged)
	}
	if _, err := parseSize(k.Size); err != nil {
		p["upgrade.keep.size"] = err.Error()
	}
	for _, s := range c.Upgrade.Download.Sources {
		if u, err := url.Parse(s); err != nil || (u.Scheme != "file" && (u.Host == "" || (u.Scheme != "https" && u.Scheme != "http"))) {
			p["upgrade.download.sources"] = fmt.Sprintf("holds %q, want https://host/folder, or file:///folder", s)
		}
	}
	for _, entry := range c.Upgrade.Download.AllowHTTP {
		if err := download.CheckAllowed(entry); err != nil {
			p["upgrade.download.allow_http"] = "holds " + err.Error()
		}
	}
	for _, entry := range c.Checks.Allow {
		if _, err := check.ParseAllowed(entry); err != nil {
			p["checks.allow"] = "holds " + err.Error()
		}
	}
	if c.Upgrade.Download.RateLimit < 0 {
		p["upgrade.download.rate_limit"] = fmt.Sprintf("is %d, want bytes per second, or 0 for no limit", c.Upgrade.Download.RateLimit)
	}
	if c.Checkin.PollTimeout < MinPollTimeout {
		p["checkin.poll_timeout"] = fmt.Sprintf("is %s, want %s or more", c.Checkin.PollTimeout, MinPollTimeout)
	}
	return p
}

// parseSize parses bytes such as 4GB.
func parseSize(s string) (int64, error) {
	number, unit := s, int64(1)
	for i, suffix := range []string{"kB", "MB", "GB", "TB"} {
		if n, ok := strings.CutSuffix(s, suffix); ok {
			number, unit = n, int64(math.Pow10(3*(i+1)))
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/unit {
		return 0, fmt.Errorf("is %q, want bytes such as 500MB or 4GB, or 0 for no limit", s)
	}
	return n * unit, nil
}

// lineOf returns the line of a dotted key in a document, or of its nearest parent that
// is there.
func lineOf(root *yaml.Node, dotted string) int {
	if len(root.Content) == 0 {
		return 1
	}
	node, line := root.Content[0], 1
	for _, key := range strings.Split(dotted, ".") {
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == key {
				node, line = node.Content[i+1], node.Content[i].Line
				break
			}
		}
	}
	return line
}

var unknownField = regexp.MustCompile(`field (\S+) not found in type \S+`)

// readable replaces Go's type names in the parser's errors.
func readable(err error) error {
	var t *yaml.TypeError
	if !errors.As(err, &t) {
		return errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	for i, e := range t.Errors {
		e = unknownField.ReplaceAllString(e, "key $1 is not known; the keys are documented in the file that install wrote")
		e = strings.NewReplacer("cannot unmarshal !!str", "cannot read", "cannot unmarshal !!int", "cannot read",
			"into time.Duration", "as a duration such as 30s or 10m",
			"into int64", "as a whole number", "into int", "as a whole number").Replace(e)
		t.Errors[i] = e
	}
	return errors.New(strings.Join(t.Errors, "; "))
}
