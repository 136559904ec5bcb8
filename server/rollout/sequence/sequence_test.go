package sequence

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/fleet"
)

var noon = time.Date(2026, 3, 3, 12, 0, 0, 0, time.UTC)

func TestDecide(t *testing.T) {
	draft, running := &fleet.Rollout{State: fleet.RolloutDraft}, &fleet.Rollout{State: fleet.RolloutRunning}
	started := &fleet.Rollout{State: fleet.RolloutDraft, Pin: &fleet.Pin{Hash: "sha256:1"}}
	cancelling, ended := &fleet.Rollout{State: fleet.RolloutCancelling}, &fleet.Rollout{State: fleet.RolloutCancelled}
	done := Item{Mark: Done, EndedAt: noon.Add(-time.Minute), Soak: time.Hour}
	soaked := Item{Mark: Done, EndedAt: noon.Add(-time.Hour), Soak: time.Hour}
	until := noon.Add(59 * time.Minute)
	for name, row := range map[string]struct {
		items []Item
		want  Step
	}{
		"nothing":                         {nil, Step{}},
		"the first":                       {[]Item{{}, {}}, Step{Status: Begins}},
		"one is under way":                {[]Item{soaked, {Mark: Running, Rollout: running}, {}}, Step{Status: Follows, Item: 1}},
		"one has to show its health":      {[]Item{done, {}}, Step{Status: Soaks, Until: until}},
		"the last need not":               {[]Item{soaked, done}, Step{Item: 2}},
		"its time is over":                {[]Item{soaked, {}}, Step{Status: Begins, Item: 1}},
		"one has failed":                  {[]Item{soaked, {Mark: Failed}, {}}, Step{Status: Fails, Item: 1}},
		"the draft of one left out":       {[]Item{{Mark: LeftOut, Rollout: draft}, {}}, Step{Status: Ends, Act: Discard}},
		"an interrupted start":            {[]Item{{Mark: LeftOut, Rollout: started}, {}}, Step{Status: Ends, Act: Begin}},
		"one left out runs":               {[]Item{{Mark: LeftOut, Rollout: running}, {}}, Step{Status: Ends, Act: Cancel}},
		"one left out is being cancelled": {[]Item{{Mark: LeftOut, Rollout: cancelling}, {}}, Step{Status: Ends}},
		"one left out has ended":          {[]Item{{Mark: LeftOut, Rollout: ended}, {Mark: LeftOut}, {}}, Step{Status: Begins, Item: 2}},
	} {
		if got := Decide(row.items, noon); got != row.want {
			t.Errorf("%s: %+v, want %+v", name, got, row.want)
		}
	}
}

// Items are carried out in their order: what is next is never behind one that is not done or left out,
// and a list in which all are done is over.
func TestOrderIsKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		items := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Item {
			return Item{Mark: rapid.SampledFrom([]Mark{Open, Running, Done, Failed, LeftOut}).Draw(t, "mark"), EndedAt: noon.Add(-time.Hour)}
		}), 0, 6).Draw(t, "items")
		step := Decide(items, noon)
		for _, it := range items[:step.Item] {
			if it.Mark != Done && it.Mark != LeftOut {
				t.Fatalf("%+v is next in %+v", step, items)
			}
		}
		if over := step.Item == len(items); over != (step.Status == Over) {
			t.Fatalf("%+v of %d items", step, len(items))
		}
	})
}

func TestTrouble(t *testing.T) {
	for kind, want := range map[fleet.StopKind]string{
		fleet.StopThreshold: "threshold", fleet.StopCanary: "canary", fleet.StopDeadline: "deadline", fleet.StopOperator: "", fleet.StopExposure: "",
	} {
		if got := Trouble(&fleet.Rollout{State: fleet.RolloutPaused, Stop: &fleet.Stop{Kind: kind}}); got != want {
			t.Errorf("stopped by %s: %q, want %q", kind, got, want)
		}
	}
	if got := Trouble(&fleet.Rollout{State: fleet.RolloutRunning, Stop: &fleet.Stop{Kind: fleet.StopCanary}}); got != "" {
		t.Errorf("while it runs: %q", got)
	}
}
