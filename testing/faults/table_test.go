package faults

import (
	"strings"
	"testing"

	"github.com/muster-fleet/muster/testing/faults/simdisk"
)

func TestTableTotals(t *testing.T) {
	f := newProof(false)
	points := []point{
		{number: 1, call: simdisk.Call{Op: "pointer", Name: "rename"}},
		{number: 2, call: simdisk.Call{Op: "queue", Name: "write"}},
		{number: 3, call: simdisk.Call{Op: "queue", Name: "write", Half: true}},
		{number: 4, call: simdisk.Call{Op: "the end"}},
	}
	a := f.scenario(scenario{name: "a_story", about: "about it"}, points)
	for _, p := range points {
		a.count(modelHalt, p, endNew)
		a.count(modelLose, p, endOld)
	}
	a.count(modelTorn, points[0], endBad)
	f.pair(scenario{name: "a_story"}).count(modelHalt, points[0], endOld)
	f.sync("pointer syncdir .", syncResult{calls: 2, found: "a_story/x/lose"})
	f.sync("queue sync q", syncResult{calls: 3, why: "no need"})
	got := f.markdown()
	for _, line := range []string{
		"- `a_story`: about it",
		"| a_story | 2 | kill | 0 | 0 | 0 | 0 |",
		"| a_story | 2 | halt | 4 | 4 | 0 | 0 |",
		"| a_story | 2 | lose | 4 | 0 | 4 | 0 |",
		"| a_story | 2 | torn | 1 | 0 | 0 | 1 |",
		"**9 faults, 1 bad ends.**",
		"| pointer | 1 | 3 | 1 |",
		"| queue | 1 | 4 | 0 |",
		"| the end | 0 | 2 | 0 |",
		"| a_story | 1 | 0 | 1 | 0 |",
		"| `pointer syncdir .` | 2 | bad end: `a_story/x/lose` |",
		"| `queue sync q` | 3 | nothing: no need |",
	} {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("the table lacks the line\n%s\nin\n%s", line, got)
		}
	}
}
