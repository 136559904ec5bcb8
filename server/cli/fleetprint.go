package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/rollout/spec"
)

func fleetTable(w io.Writer, objects []spec.Fleet, wide bool, now time.Time) {
	heading := "NAME\tREADY\tAGENTS\tVERSIONS\tHASH\tROLLOUT\tAGE"
	if wide {
		heading += "\tCOMPLETED\tGENERATION\tWAITS FOR\tMESSAGE"
	}
	table(w, heading, func(add func(...any)) {
		for i := range objects {
			f := &objects[i]
			row := []any{f.Metadata.Name, readyWord(f), f.Status.Agents, versionsText(f), shortHash(f.Status.RequestedRolloutHash), rolloutText(f), strings.TrimSuffix(ago(f.Metadata.CreationTimestamp, now), " ago")}
			if wide {
				row = append(row, shortHash(f.Status.LastCompletedRolloutHash), f.Metadata.Generation, cmp.Or(deref(f.Status.Rollout).Waiting, "-"), cmp.Or(conditionOf(f, spec.Ready).Message, "-"))
			}
			add(row...)
		}
	})
}

func conditionOf(f *spec.Fleet, t spec.ConditionType) spec.Condition {
	return deref(f.Status.Condition(t))
}

// readyWord is whether an object is ready, and otherwise why not.
func readyWord(f *spec.Fleet) string {
	c := conditionOf(f, spec.Ready)
	switch {
	case f.Status.Suspended != nil:
		return "False (Suspended)"
	case c.Status == "":
		return string(spec.Unknown)
	case c.Status != spec.True && c.Reason != "":
		return fmt.Sprintf("%s (%s)", c.Status, c.Reason)
	}
	return string(c.Status)
}

// versionsText says how many agents run what the spec desires. Of an upgrade manifest only the server
// knows the version, so all versions are named.
func versionsText(f *spec.Fleet) string {
	var words []string
	for _, p := range f.Spec.Parts() {
		running := f.Status.Versions[p.Name()]
		if p.UpgradeManifest == nil {
			words = append(words, fmt.Sprintf("%s %s %d/%d", p.Name(), p.Version, running[p.Version], f.Status.Agents))
			continue
		}
		words = append(words, fmt.Sprintf("%s %s", p.Name(), cmp.Or(countsText(running), "of manifest "+p.UpgradeManifest.ID)))
	}
	return strings.Join(words, ", ")
}

// countsText lists versions with the number of agents that run them.
func countsText(running map[string]int) string {
	var words []string
	for _, v := range slices.Sorted(maps.Keys(running)) {
		words = append(words, fmt.Sprintf("%s ×%d", cmp.Or(v, "none"), running[v]))
	}
	return strings.Join(words, " ")
}

// shortHash shortens a hash for people.
func shortHash(hash string) string {
	if len(hash) > 12 {
		hash = hash[:12]
	}
	return cmp.Or(hash, "-")
}

func rolloutText(f *spec.Fleet) string {
	r := f.Status.Rollout
	if r == nil {
		return "-"
	}
	text := fmt.Sprintf("%s %s %s", cmp.Or(r.Component, spec.AgentPart), r.Version, r.State)
	if conditionOf(f, spec.Promoting).Reason == "NextWaits" {
		text += "; a change waits for its end"
	}
	return text
}

func printFleet(w io.Writer, f *spec.Fleet, now time.Time) {
	fmt.Fprintf(w, "fleet/%s\n", f.Metadata.Name)
	about := details{w, 12}
	about.row("ready", readyWord(f))
	about.row("agents", fmt.Sprint(f.Status.Agents))
	for _, p := range f.Spec.Parts() {
		wants := p.Version
		if p.UpgradeManifest != nil {
			wants = fmt.Sprintf("manifest %s of profile %s", p.UpgradeManifest.ID, p.UpgradeManifest.Profile)
		}
		about.rowf(p.Name(), "wants %s; runs %s", wants, cmp.Or(countsText(f.Status.Versions[p.Name()]), "nothing yet"))
	}
	about.rowf("generation", "%d, created %s", f.Metadata.Generation, ago(f.Metadata.CreationTimestamp, now))
	if f.Status.ObservedGeneration != f.Metadata.Generation {
		about.rowf("", "the server has not observed it yet; what follows is about generation %d", f.Status.ObservedGeneration)
	}
	about.row("hash", cmp.Or(f.Status.RequestedRolloutHash, "none yet"))
	if done := f.Status.LastCompletedRolloutHash; done != f.Status.RequestedRolloutHash {
		about.row("completed", cmp.Or(done, "none yet"))
	}
	if r := f.Status.Rollout; r != nil {
		about.rowf("rollout", "%s: see `muster rollouts status %s`", rolloutText(f), r.ID)
		about.option("", r.Waiting)
	}
	if s := f.Status.Suspended; s != nil {
		about.rowf("suspended", "by %s at %s: %s", s.By, atTime(s.At), cmp.Or(s.Why, "no reason given"))
		about.rowf("", "resume it with `muster fleets resume %s`", f.Metadata.Name)
	}
	if len(f.Status.Conditions) > 0 {
		tableOf(w, "CONDITION\tSTATUS\tSINCE\tREASON\tMESSAGE", f.Status.Conditions, func(c spec.Condition) []any {
			return []any{c.Type, c.Status, ago(&c.LastTransitionTime, now), c.Reason, c.Message}
		})
	}
}
