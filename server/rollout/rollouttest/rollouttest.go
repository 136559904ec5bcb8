// Package rollouttest has hosts, packages and rollouts for the tests of the rollout
// packages.
package rollouttest

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// Noon is on a Tuesday.
var Noon = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

// Host describes an agent.
type Host struct {
	ID, Version, OS, Arch, Site, Ring, Policy string
	Tags                                      []string
	Away                                      bool
}

// Agent returns an upgradeable agent on linux/amd64 that runs 1.0.0, unless h says
// otherwise.
func (h Host) Agent() fleet.Agent {
	or := func(s, other string) string {
		if s == "" {
			return other
		}
		return s
	}
	seen := Noon.Add(-10 * time.Second)
	if h.Away {
		seen = Noon.Add(-time.Hour)
	}
	meta := map[string]any{
		"elastic": map[string]any{"agent": map[string]any{"id": h.ID, "version": or(h.Version, "1.0.0"), "upgradeable": true, "snapshot": false}},
		"host":    map[string]any{"architecture": or(h.Arch, "x86_64"), "hostname": "host-" + h.ID, "name": "host-" + h.ID, "id": "0", "ip": []string{"10.0.0.1/8"}},
		"os":      map[string]any{"type": or(h.OS, "linux"), "platform": "debian", "family": "debian", "version": "12", "name": "Debian", "full": "Debian 12"},
	}
	local, err := json.Marshal(meta)
	if err != nil {
		panic(err)
	}
	a := fleet.Agent{
		ID: h.ID, Active: true, Version: or(h.Version, "1.0.0"), PolicyID: or(h.Policy, "default"), PolicyRev: 1, LocalMetadata: local,
		EnrolledAt: Noon.Add(-time.Hour), Tags: h.Tags, Last: fleet.LastSeen{At: &seen, Status: "online"},
	}
	for name, v := range map[string]string{"site": h.Site, "ring": h.Ring} {
		if v != "" {
			a.Tags = append(a.Tags, name+"="+v)
		}
	}
	return a
}

// Agents returns the agents of several hosts.
func Agents(hosts ...Host) []fleet.Agent {
	var out []fleet.Agent
	for _, h := range hosts {
		out = append(out, h.Agent())
	}
	return out
}

// Many returns n agents like h, with different ids.
func Many(n int, h Host) []fleet.Agent {
	var out []fleet.Agent
	for i := range n {
		h.ID = fmt.Sprintf("%s%05d", h.OS+h.Site+h.Ring+"a", i)
		out = append(out, h.Agent())
	}
	return out
}

// Published returns a catalog with a package of each version for two platforms.
func Published(versions ...string) fleet.Catalog {
	var c fleet.Catalog
	for _, v := range versions {
		for i, arch := range []string{"amd64", "arm64"} {
			sum := strings.Repeat(fmt.Sprintf("%02x", len(v)*7+i+int(v[0])), 64)
			c = append(c, fleet.Package{File: "agent-" + v + "-linux-" + arch, Version: v, OS: "linux", Arch: arch, Size: 1000 + int64(i), SHA512: sum})
		}
	}
	return c
}

// Hour is the time at which tests evaluate the rollouts of InState.
var Hour = time.Date(2026, 3, 3, 12, 0, 0, 0, time.UTC)

// InState returns a rollout of ten agents, three of which have failed.
func InState(state fleet.RolloutState, change ...func(*fleet.Rollout)) fleet.Rollout {
	started := Hour.Add(-time.Hour)
	r := fleet.Rollout{
		ID: "r1", State: state, Generation: 4, Counts: fleet.Counts{Total: 10, Pending: 4, Succeeded: 3, Failed: 2, RolledBack: 1},
		Plan:    fleet.Plan{Name: "spring", Version: "1.2.0", Strategy: fleet.Strategy{Kind: fleet.Rolling}},
		Batches: []fleet.Batch{{ClearedAt: &started}, {Index: 1}, {Index: 2}},
	}
	if state != fleet.RolloutDraft {
		r.StartedAt = &started
	}
	for _, f := range change {
		f(&r)
	}
	return r
}

// StoppedBy gives a rollout a stop.
func StoppedBy(kind fleet.StopKind) func(*fleet.Rollout) {
	return func(r *fleet.Rollout) {
		r.Stop = &fleet.Stop{Kind: kind, Text: "3 of 6 failed, the plan stops at 3", By: "muster", At: Hour.Add(-time.Minute)}
	}
}
