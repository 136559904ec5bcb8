package fleet

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Maker is whose agent it is, or whose agents a package is for. The programs have
// different packages, so an agent is never offered one of the other maker.
type Maker string

const (
	MakerMuster  Maker = ""
	MakerElastic Maker = "elastic"
)

// maker returns whose agent reports m. Both send the same User-Agent, since a Fleet Server
// accepts no other. But only Muster's agent reports os.type, and Elastic's reports its
// build without it.
func (m *HostMetadata) maker() Maker {
	if m.OS.Type == "" && m.Elastic.Agent.Build.Original != "" {
		return MakerElastic
	}
	return MakerMuster
}

// ReportsPhases reports whether agents of the maker in this version report
// upgrade_details. Elastic's do from 8.12 on.
func (k Maker) ReportsPhases(version string) bool {
	if k != MakerElastic {
		return true
	}
	c, err := manifest.CompareVersions(version, "8.12.0-0") // snapshots and candidates of 8.12.0 too
	return err != nil || c >= 0
}

// SendsDiagnostics reports whether agents of the maker in this version send their
// diagnostics when they are asked. Elastic's do from 8.7.0 on; Kibana's rule, by which one
// that reports no version does not.
func (k Maker) SendsDiagnostics(version string) bool {
	if k != MakerElastic {
		return true
	}
	c, err := manifest.CompareVersions(version, "8.7.0")
	return err == nil && c >= 0
}

// Details returns what an agent of the maker means by d. Elastic's agents send
// download_percent as 0 to 100 during a download, and as 0 to 1 at its end. They have no
// reason_code, and say in the reason that somebody asked for a rollback.
func (k Maker) Details(d agentapi.UpgradeDetails) *agentapi.UpgradeDetails {
	if k != MakerElastic {
		return &d
	}
	if p := &d.Metadata.DownloadPercent; *p <= 1 {
		*p *= 100
	}
	if m := &d.Metadata; m.ReasonCode == "" && strings.HasPrefix(m.Reason, elasticManualRollback) {
		m.ReasonCode = agentapi.ReasonManual
	}
	return &d
}

// elasticManualRollback begins the reason that Elastic's agents give for a rollback that
// somebody asked for, on the host or from a server.
const elasticManualRollback = "manual rollback requested"

// ReportsLate reports whether the agent has begun an upgrade, and reports its progress
// only at the start of its polls, as Elastic's agents do.
func (a *Agent) ReportsLate(now time.Time) bool {
	d := a.UpgradeDetails
	begun := d != nil && !d.State.Ended() && d.State != agentapi.UpgradeScheduled ||
		d == nil && a.Upgrading() && !a.UpgradeStartedAt.After(now)
	return begun && a.Host().Maker == MakerElastic
}

// linuxes are the platforms and families of Linux, as os-release and go-sysinfo name them.
var linuxes = []string{
	"linux", "debian", "ubuntu", "linuxmint", "pop", "kali", "raspbian", "elementary", "neon", "devuan",
	"redhat", "rhel", "centos", "fedora", "rocky", "almalinux", "ol", "oraclelinux", "oracle", "scientific", "amzn", "amazon",
	"suse", "sles", "sled", "opensuse", "opensuse-leap", "opensuse-tumbleweed", "sle-micro", "sle_hpc",
	"arch", "archarm", "manjaro", "antix", "alpine", "gentoo", "slackware", "void", "nixos", "clear-linux-os", "mageia",
	"photon", "mariner", "azurelinux", "flatcar", "coreos", "cos", "bottlerocket", "rancheros", "wolfi", "openeuler", "kylin", "anolis", "wrlinux", "poky",
}

// system returns Go's name of the operating system, empty if it is not known. Elastic's
// agents report no os.type.
func (o osMetadata) system() string {
	if o.Type != "" {
		return o.Type
	}
	for _, name := range []string{strings.ToLower(o.Platform), strings.ToLower(o.Family)} {
		switch {
		case name == "windows", name == "darwin", name == "freebsd", name == "openbsd", name == "netbsd", name == "aix", name == "solaris":
			return name
		case name == "macos":
			return "darwin"
		case slices.Contains(linuxes, name):
			return "linux"
		}
	}
	return ""
}

// dottedKey matches a key with a dot in JSON.
var dottedKey = regexp.MustCompile(`\.[^"\\]*"\s*:`)

// NestMetadata returns local metadata with each key that has dots replaced by nested
// objects. Elasticsearch takes both forms as the same field. Elastic's agents send
// elastic.agent."build.original", others nest it. What is not an object is returned as it
// is.
func NestMetadata(raw json.RawMessage) json.RawMessage {
	if !dottedKey.Match(raw) {
		return raw
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber() // the stored numbers are those of the report
	var m map[string]any
	if err := dec.Decode(&m); err != nil {
		return raw // the caller checks it
	}
	out, err := json.Marshal(nest(m))
	if err != nil {
		panic("nest metadata: " + err.Error()) // it was decoded from JSON
	}
	return out
}

func nest(m map[string]any) map[string]any {
	out := map[string]any{}
	dotted := func(k string) bool {
		return strings.Trim(k, ".") == k && strings.Contains(k, ".") && !strings.Contains(k, "..")
	}
	for k, v := range m {
		if !dotted(k) {
			out[k] = nestValue(v)
		}
	}
	// In order, so that the result does not depend on that of the map.
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if dotted(k) {
			put(out, strings.Split(k, "."), nestValue(m[k]))
		}
	}
	return out
}

func nestValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return nest(v)
	case []any:
		for i := range v {
			v[i] = nestValue(v[i])
		}
	}
	return v
}

// put sets the value at a path. If both it and v are objects, they are merged; any other value
// that is there stays.
func put(m map[string]any, path []string, v any) {
	for _, name := range path[:len(path)-1] {
		inner, ok := m[name].(map[string]any)
		if !ok {
			if _, taken := m[name]; taken {
				return
			}
			inner = map[string]any{}
			m[name] = inner
		}
		m = inner
	}
	last := path[len(path)-1]
	old, taken := m[last]
	if !taken {
		m[last] = v
		return
	}
	into, ok := old.(map[string]any)
	from, also := v.(map[string]any)
	if ok && also {
		for k, inner := range from {
			put(into, []string{k}, inner)
		}
	}
}
