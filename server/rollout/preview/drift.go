package preview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
)

// Compare returns how the fleet now differs from the pinned preview. Two previews of
// one plan have the same hash if and only if they do not differ.
func Compare(pinned, now fleet.Preview) fleet.Drift {
	d := fleet.Drift{Added: []fleet.DriftItem{}, Removed: []fleet.DriftItem{}, Changed: []fleet.DriftItem{}}
	was, is := placesOf(&pinned), placesOf(&now)
	for id, before := range was {
		after := is[id]
		item := fleet.DriftItem{AgentID: id, Hostname: cmp.Or(after.hostname(), before.hostname())}
		switch {
		case before.target != nil && after.target != nil:
			if item.Text = moved(before.target, after.target); item.Text != "" {
				d.Changed = append(d.Changed, item)
			}
		case before.target != nil:
			item.Text = "does not match any more"
			if after.skipped != nil {
				item.Text = "is left out: " + after.skipped.Text
			}
			d.Removed = append(d.Removed, item)
		case after.target != nil:
			item.Text = fmt.Sprintf("was left out (%s), joins batch %d", before.skipped.Text, after.target.Batch+1)
			d.Added = append(d.Added, item)
		case after.skipped == nil:
			item.Text = fmt.Sprintf("was left out (%s), does not match any more", before.skipped.Text)
			d.Changed = append(d.Changed, item)
		case after.skipped.Code != before.skipped.Code:
			item.Text = fmt.Sprintf("is left out for another reason: %s (was: %s)", after.skipped.Text, before.skipped.Text)
			d.Changed = append(d.Changed, item)
		}
	}
	for id, after := range is {
		if _, known := was[id]; known {
			continue
		}
		item := fleet.DriftItem{AgentID: id, Hostname: after.hostname()}
		if after.target != nil {
			item.Text = fmt.Sprintf("matches now, joins batch %d", after.target.Batch+1)
			d.Added = append(d.Added, item)
		} else {
			item.Text = "matches now and is left out: " + after.skipped.Text
			d.Changed = append(d.Changed, item)
		}
	}
	for _, items := range [][]fleet.DriftItem{d.Added, d.Removed, d.Changed} {
		slices.SortFunc(items, func(a, b fleet.DriftItem) int { return cmp.Compare(a.AgentID, b.AgentID) })
	}
	return d
}

// place is the entry of an agent in a preview: one of the two is set.
type place struct {
	target  *fleet.PreviewTarget
	skipped *fleet.SkippedAgent
}

func (p place) hostname() string {
	switch {
	case p.target != nil:
		return p.target.Hostname
	case p.skipped != nil:
		return p.skipped.Hostname
	}
	return ""
}

func placesOf(pre *fleet.Preview) map[string]place {
	places := make(map[string]place, len(pre.Targets)+len(pre.Skipped))
	for i := range pre.Targets {
		places[pre.Targets[i].AgentID] = place{target: &pre.Targets[i]}
	}
	for i := range pre.Skipped {
		places[pre.Skipped[i].AgentID] = place{skipped: &pre.Skipped[i]}
	}
	return places
}

func moved(was, is *fleet.PreviewTarget) string {
	var parts []string
	if was.From != is.From {
		parts = append(parts, fmt.Sprintf("runs %s, not %s", plan.VersionText(is.From), plan.VersionText(was.From)))
	}
	if was.To != is.To {
		parts = append(parts, fmt.Sprintf("goes to %s, not %s", is.To, was.To))
	}
	if was.Config != is.Config {
		parts = append(parts, "gets other configuration")
	}
	if was.Ring != is.Ring {
		parts = append(parts, fmt.Sprintf("is in ring %d, not %d", is.Ring, was.Ring))
	}
	if was.Batch != is.Batch {
		parts = append(parts, fmt.Sprintf("is in batch %d, not %d", is.Batch+1, was.Batch+1))
	}
	return strings.Join(parts, "; ")
}
