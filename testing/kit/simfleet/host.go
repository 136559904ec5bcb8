package simfleet

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// The versions of the fleet.
const (
	oldest  = "2.2.1" // whose package is gone
	older   = "2.3.0"
	current = "2.4.0"
	broken  = "2.4.1" // most hosts roll it back
	newest  = "2.5.0"
)

// machine is a kind of computer.
type machine struct {
	os, arch, platform, name, full, kernel string
	reported                               string // the architecture as the host reports it
}

var (
	debian  = machine{"linux", "amd64", "debian", "Debian GNU/Linux", "Debian GNU/Linux 13 (trixie)", "6.12.41-amd64", "x86_64"}
	ubuntu  = machine{"linux", "amd64", "ubuntu", "Ubuntu", "Ubuntu 24.04.3 LTS (Noble Numbat)", "6.8.0-79-generic", "x86_64"}
	arm     = machine{"linux", "arm64", "debian", "Debian GNU/Linux", "Debian GNU/Linux 12 (bookworm)", "6.1.0-39-arm64", "aarch64"}
	windows = machine{"windows", "amd64", "windows", "Windows Server 2022", "Windows Server 2022 Datacenter 21H2", "10.0.20348.4052", "x86_64"}
	laptop  = machine{"windows", "amd64", "windows", "Windows 11 Pro", "Windows 11 Pro 24H2", "10.0.26100.4652", "x86_64"}
	mac     = machine{"darwin", "arm64", "darwin", "macOS", "macOS 15.6", "24.6.0", "arm64"}
)

// platforms are those that packages are published for.
var platforms = []machine{debian, arm, windows, mac}

// role is what hosts of a policy are for.
type role struct {
	policy, name, description string
	hosts                     string // the beginning of their names
	share                     int    // of a hundred hosts
	machines                  []machine
	components                []string // that the policy lists, besides the collector
	vip                       bool     // they have a rarer tag
}

var roles = []role{
	{policy: "web", name: "Web servers", description: "Public web and API front ends", hosts: "web", share: 38, machines: []machine{debian, debian, debian, ubuntu}, components: []string{webComponent}},
	{policy: "db", name: "Databases", description: "PostgreSQL primaries and replicas", hosts: "db", share: 14, machines: []machine{debian, debian, ubuntu}, vip: true},
	{policy: "edge", name: "Edge gateways", description: "Small gateways in branches, often on slow links", hosts: "edge", share: 22, machines: []machine{arm, arm, debian}},
	{policy: "ci", name: "CI workers", description: "Build machines", hosts: "ci", share: 10, machines: []machine{ubuntu, ubuntu, windows, mac}},
	{policy: "desk", name: "Workstations", description: "Computers of employees", hosts: "desk", share: 16, machines: []machine{laptop, laptop, mac}},
}

var sites = []struct {
	name  string
	share int
}{{"fra", 30}, {"iad", 26}, {"sin", 16}, {"gru", 12}, {"ams", 10}, {"syd", 6}}

// health is how a host is.
type health int

const (
	healthy health = iota
	degraded
	failing
	away
	longAway // for weeks
	enrolling
	unenrolled
)

// story is what happened to a host before the fleet is shown.
type story int

const (
	plain     story = iota
	canary          // runs the newest version already
	rolled          // its watcher put the version before the broken one back
	failed          // an upgrade failed without harm
	behind          // it was away when the others were upgraded
	cancelled       // its last upgrade was cancelled
)

// host is one computer of the fleet. All of it follows from the seed and its number.
type host struct {
	number int
	id     string
	name   string
	role   *role
	site   string
	machine
	tags     []string
	health   health
	story    story
	enrolled time.Duration // ago
	// Credentials of live hosts.
	access, watcher fleet.Credential
	live            bool
	rng             *rand.Rand
}

// newHosts returns the hosts of a fleet, of which some are live: spread evenly over all
// roles, sites and machines.
func newHosts(o Options) []*host {
	hosts := make([]*host, o.Hosts)
	count := map[string]int{}
	live := 0
	for i := range hosts {
		rng := rand.New(rand.NewPCG(o.Seed, uint64(i)))
		h := &host{number: i, rng: rng, live: o.Live*(i+1)/o.Hosts > live}
		if h.live {
			live++
		}
		h.role = pickRole(i, rng)
		h.site = pickSite(rng)
		h.machine = h.role.machines[rng.IntN(len(h.role.machines))]
		place := h.role.hosts + "-" + h.site
		count[place]++
		h.name = fmt.Sprintf("%s-%04d", place, count[place])
		h.id = idOf(rng)
		h.health, h.story = h.pickHealth(), h.pickStory()
		h.enrolled = time.Duration(30+rng.IntN(170)) * 24 * time.Hour
		if h.health == enrolling {
			h.enrolled, h.story = time.Duration(rng.IntN(240))*time.Second, plain
		}
		h.tags = h.pickTags()
		h.access, h.watcher = credential(rng), credential(rng)
		hosts[i] = h
	}
	return hosts
}

func pickRole(i int, rng *rand.Rand) *role {
	if i < len(roles) {
		return &roles[i] // so that also a tiny fleet has all
	}
	n := rng.IntN(100)
	for k := range roles {
		if n -= roles[k].share; n < 0 {
			return &roles[k]
		}
	}
	return &roles[0]
}

func pickSite(rng *rand.Rand) string {
	n := rng.IntN(100)
	for _, s := range sites {
		if n -= s.share; n < 0 {
			return s.name
		}
	}
	return sites[0].name
}

// idOf returns an id in the form of a UUID.
func idOf(rng *rand.Rand) string {
	a, b := rng.Uint64(), rng.Uint64()
	return fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", uint32(a>>32), uint16(a>>16), a&0xfff, b>>52, b&0xffffffffffff)
}

func credential(rng *rand.Rand) fleet.Credential {
	return fleet.Credential{ID: fmt.Sprintf("%020x", rng.Uint64()), Secret: fmt.Sprintf("%016x%016x%016x", rng.Uint64(), rng.Uint64(), rng.Uint64())}
}

func (h *host) pickHealth() health {
	if h.live {
		if h.role.policy == "desk" && h.rng.IntN(5) == 0 {
			return degraded
		}
		return healthy
	}
	switch n := h.rng.IntN(1000); {
	case n < 28:
		return degraded
	case n < 38:
		return failing
	case n < 66:
		return away
	case n < 70:
		return longAway
	case n < 74:
		return enrolling
	case n < 84:
		return unenrolled
	}
	return healthy
}

func (h *host) pickStory() story {
	if h.live {
		return plain
	}
	switch n := h.rng.IntN(1000); {
	case n < 60:
		return canary
	case n < 84:
		return rolled
	case n < 98:
		return failed
	case n < 300:
		return behind
	case n < 306:
		return cancelled
	}
	return plain
}

func (h *host) pickTags() []string {
	ring := "ring=main"
	if h.live {
		ring = "ring=early"
	}
	tags := []string{"site=" + h.site, ring, []string{"production", "production", "production", "staging"}[h.rng.IntN(4)]}
	if h.role.vip {
		tags = append(tags, "critical")
	}
	if h.rng.IntN(12) == 0 {
		tags = append(tags, "pci")
	}
	return tags
}

// version returns the version that the host runs at first.
func (h *host) version() string {
	switch h.story {
	case canary:
		return newest
	case behind:
		return older
	}
	if h.health == longAway {
		return oldest
	}
	return current
}

// metadata returns the host's local_metadata with a version of the agent.
func (h *host) metadata(version string) json.RawMessage {
	n := h.number
	return fmt.Appendf(nil, `{"elastic":{"agent":{"id":%q,"version":%q,"snapshot":false,"upgradeable":true,"log_level":"info"}},`+
		`"host":{"hostname":%q,"name":%q,"architecture":%q,"id":"%032x","ip":["10.%d.%d.%d/16"],"mac":["02:42:ac:%02x:%02x:%02x"]},`+
		`"os":{"type":%q,"platform":%q,"family":%q,"name":%q,"full":%q,"kernel":%q}}`,
		h.id, version, h.name, h.name, h.reported, n*7919+1, n>>16&0xff, n>>8&0xff, n&0xff, n>>16&0xff, n>>8&0xff, n&0xff,
		h.os, h.platform, h.platform, h.machine.name, h.full, h.kernel)
}
