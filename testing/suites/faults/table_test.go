package faults

import (
	"strings"
	"testing"

	"github.com/muster-fleet/muster/testing/kit/simdisk"
)

func TestTableTotals(t *testing.T) {
	f := newProof(false)
	points := []point{
		{number: 1, call: simdisk.Call{Op: "pointer", Name: "rename"}},
		{number: 2, call: simdisk.Call{Op: "queue", Name: "write"}},
		{number: 3, call: simdisk.Call{Op: "queue", Name: "write", Half: true}},
		{number: 4, call: simdisk.Call{Op: "the end"}},
	}
	s := scenario{name: "a_story", about: "about it", ends: endOld, reasons: afterSwitch}
	a := f.scenario(s, points)
	for _, p := range points {
		a.count(modelKill, p, false)
		a.count(modelLose, p, false)
	}
	a.count(modelTorn, points[0], true)
	a.cache.disks[key{}[0]] = true
	f.pair(s).count(modelHalt, points[0], false)
	f.sync("pointer syncdir .", syncResult{calls: 2, found: "a_story/x/lose"})
	f.sync("queue sync q", syncResult{calls: 3, why: "no need"})
	got := f.markdown()
	for _, line := range []string{
		"- `a_story`: about it",
		"| a_story | 2 | 4 | 0 | 4 | 1 | 0 | 0 | 9 | 5 | old | crash_loop, not_started | 1 |",
		"**9 faults, 5 distinct worlds, 1 bad ends.** A world is a disk from which the host boots after a fault, or a run in which processes live on: many faults leave the same disk.",
		"| pointer | 1 | 3 | 1 |",
		"| the end | 0 | 2 | 0 |",
		"| **sum** | 1 | 5 | 1 |",
		"| queue | 1 | 4 | 0 |",
		"| **sum** | 1 | 4 | 0 |",
		"| a_story | 1 | old | 0 |",
		"| `pointer syncdir .` | 2 | bad end: `a_story/x/lose` |",
		"| `queue sync q` | 3 | nothing: no need |",
	} {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("the table lacks the line\n%s\nin\n%s", line, got)
		}
	}
}
