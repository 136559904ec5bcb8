package plan

import (
	"math"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// exposureCounts is how long a silent agent counts: two weeks are longer than any
// holiday shutdown. An agent that is silent for longer neither enlarges the fleet,
// which would let more agents have a new version, nor uses up the budget.
const exposureCounts = fleet.DefaultInactivityTimeout

// Tally counts a census against the exposure rule: NewTally creates it, Add adds every
// agent, and Budget returns the Room of a version. It is not safe for concurrent use.
type Tally struct {
	rule   fleet.ExposureRule
	now    time.Time
	agents []counted
	hours  map[string]float64 // by version
	// values are the label values found. numbers has their indices, by label in the
	// order of the rule.
	values  []fleet.ExposureValue
	percent []float64 // of values
	numbers [fleet.MaxLabelLimits]map[string]int32
}

// counted is what Tally stores of an agent.
type counted struct {
	id, version string
	sites       [fleet.MaxLabelLimits]int32
}

// NewTally returns an empty tally.
func NewTally(rule fleet.ExposureRule, now time.Time) *Tally {
	t := &Tally{rule: rule, now: now, hours: map[string]float64{}}
	t.rule.Per = rule.Per[:min(len(rule.Per), fleet.MaxLabelLimits)]
	for i := range t.rule.Per {
		t.numbers[i] = map[string]int32{}
	}
	return t
}

// Add counts one agent.
func (t *Tally) Add(c fleet.Census) {
	if !c.Active || c.LastCheckin == nil || t.now.Sub(*c.LastCheckin) > exposureCounts {
		return
	}
	a := counted{id: c.ID, version: c.Version, sites: NoSites}
	for i, per := range t.rule.Per {
		value := fleet.DecodeLabel(c.Labels, per.Label)
		if value == "" {
			continue
		}
		n, known := t.numbers[i][value]
		if !known {
			n = int32(len(t.values))
			t.numbers[i][value] = n
			t.values = append(t.values, fleet.ExposureValue{Label: per.Label, Value: value})
			t.percent = append(t.percent, per.Percent)
		}
		a.sites[i] = n
		t.values[n].Fleet++
	}
	t.agents = append(t.agents, a)
	if c.HealthySince.IsZero() {
		return
	}
	since := c.HealthySince
	if c.VersionSince.After(since) {
		since = c.VersionSince
	}
	if well := c.LastCheckin.Sub(since); well > 0 {
		t.hours[c.Version] += well.Hours()
	}
}

// NoSites are the numbers of an agent that has none of the labels.
var NoSites = [fleet.MaxLabelLimits]int32{-1, -1, -1, -1}

// Budget returns how far a version may spread; nil if no rule is in force. offered are
// the ids of agents that were offered it and do not run it yet.
func (t *Tally) Budget(version string, offered map[string]bool) *Room {
	if !t.rule.Enabled {
		return nil
	}
	room := &Room{
		Exposure: fleet.Exposure{Version: version, Fleet: len(t.agents), HealthyHours: t.hours[version], NeededHours: t.rule.HealthyHours},
		Sites:    append([]fleet.ExposureValue(nil), t.values...),
	}
	for i := range t.agents {
		a := &t.agents[i]
		if a.version != version && !offered[a.id] {
			continue
		}
		room.Exposed++
		for _, n := range a.sites {
			if n >= 0 {
				room.Sites[n].Exposed++
			}
		}
	}
	proven := room.HealthyHours >= room.NeededHours
	room.Limit = exposureLimit(t.rule.Percent, room.Fleet, proven)
	tightest := -1
	for i := range room.Sites {
		site := &room.Sites[i]
		site.Limit = exposureLimit(t.percent[i], site.Fleet, proven)
		if tightest < 0 || site.Limit-site.Exposed < room.Sites[tightest].Limit-room.Sites[tightest].Exposed {
			tightest = i
		}
	}
	if tightest >= 0 {
		value := room.Sites[tightest]
		room.Tightest = &value
	}
	return room
}

// exposureLimit returns how many of n agents may have a version: all if it is proven,
// else a percentage, rounded down, but at least one. A version that no agent may have
// would never be proven.
func exposureLimit(percent float64, n int, proven bool) int {
	if proven {
		return n
	}
	return max(1, int(math.Floor(percent*float64(n)/100+1e-9)))
}

// Sites returns the numbers of an agent's values of the rule's labels, as in
// Room.Sites: -1 for a label that it does not have, and for a value that no counted
// agent has.
func (t *Tally) Sites(labels string) [fleet.MaxLabelLimits]int32 {
	sites := NoSites
	for i, per := range t.rule.Per {
		if n, known := t.numbers[i][fleet.DecodeLabel(labels, per.Label)]; known {
			sites[i] = n
		}
	}
	return sites
}
