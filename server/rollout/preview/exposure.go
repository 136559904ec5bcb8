package preview

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
)

// ErrExposure is the code of the error for a plan that could exceed the exposure
// budget.
const ErrExposure = "rollout_exposure"

// roundingHours is the tolerance for sums of hours.
const roundingHours = 1e-6

// siteNumbers are indices into Room.Sites of one target's label values.
type siteNumbers []int32

type labelValue struct{ label, value string }

// siteIndex assigns siteNumbers.
type siteIndex struct {
	labels []string
	number map[labelValue]int32
}

func numberSites(room *plan.Room) siteIndex {
	index := siteIndex{number: map[labelValue]int32{}}
	if room == nil {
		return index
	}
	for i, site := range room.Sites {
		index.number[labelValue{site.Label, site.Value}] = int32(i)
		if !slices.Contains(index.labels, site.Label) {
			index.labels = append(index.labels, site.Label)
		}
	}
	return index
}

func (x siteIndex) of(a *plan.Candidate) siteNumbers {
	var of siteNumbers
	for _, label := range x.labels {
		if n, ok := x.number[labelValue{label, a.Label(label)}]; ok {
			of = append(of, n)
		}
	}
	return of
}

// sitesOf returns those of all targets, in order.
func sitesOf(cuts []plan.Cut, picks []*pick) []siteNumbers {
	var all []siteNumbers
	for _, c := range cuts {
		for _, m := range c.Members {
			all = append(all, picks[m].sites)
		}
	}
	return all
}

// checkExposure refuses a plan that could exceed the budget. It simulates the batches
// as fast as the plan allows, and counts only the health hours that the plan's waits
// guarantee. Emergencies are no exception: the budget exists to protect against haste.
func checkExposure(p *fleet.Plan, pre *fleet.Preview, room *plan.Room, sites []siteNumbers, verify time.Duration) error {
	hours, needed := room.HealthyHours, room.NeededHours
	exposed, running, next := room.Exposed, 0, 0
	bySite := make([]int, len(room.Sites))
	for i, site := range room.Sites {
		bySite[i] = site.Exposed
	}
	for _, b := range pre.Batches {
		for begun := 0; begun < b.Size; begun += plan.MaxParallel(p) {
			if hours >= needed-roundingHours {
				return nil // proven, and hours only increase
			}
			wave := min(plan.MaxParallel(p), b.Size-begun)
			over := overrun{batch: b.Index + 1, version: p.Version, hours: hours, needed: needed, running: running}
			exposed += wave
			if exposed > room.Limit {
				return over.refuse("of the fleet", exposed, room.Fleet, room.Limit)
			}
			if sites != nil {
				for _, of := range sites[next : next+wave] {
					for _, i := range of {
						bySite[i]++
					}
				}
			}
			next += wave
			for i, site := range room.Sites {
				// A site that exceeds its limit without this plan is no reason to
				// refuse it.
				if bySite[i] > site.Limit && bySite[i] > site.Exposed {
					return over.refuse(fmt.Sprintf("of those with %s %s", site.Label, site.Value), bySite[i], site.Fleet, site.Limit)
				}
			}
			running += wave
			hours += float64(running) * verify.Hours()
		}
		hours += float64(running) * plan.Gap(p, b.Kind).Hours()
	}
	return nil
}

// overrun is where a plan exceeds the budget.
type overrun struct {
	batch         int // from 1
	version       string
	hours, needed float64
	running       int // agents that have the version by then
}

func (o overrun) refuse(of string, exposed, total, limit int) error {
	advice := fmt.Sprintf("begin with %s at most", plan.Count(limit, "agent", "agents"))
	if o.running > 0 {
		wait := time.Duration(math.Ceil((o.needed-o.hours-roundingHours)/float64(o.running)*60)) * time.Minute
		advice = fmt.Sprintf("soak for about %s longer before it, or make batches smaller", plan.Span(fleet.Duration(wait)))
	}
	e := fleet.Errorf(fleet.Conflict,
		"batch %d could bring %s to %d %s (%s %% of %d), where the exposure budget lets %d have it before %s h of health; only %s h are certain by then: %s",
		o.batch, o.version, exposed, of, plan.Number(100*float64(exposed)/float64(max(1, total))), total, limit, plan.Number(o.needed), plan.Number(o.hours), advice)
	e.Code = ErrExposure
	return e
}
