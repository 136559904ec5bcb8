package simfleet

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

const (
	// waveOf is how many hosts the rollouts of the past have: those of a large fleet would take
	// longer to write than the agents. The others got their versions without a rollout.
	waveOf = 10_000
	// canaries is the size of the first batch of a wave, and parts is how many follow it.
	canaries, parts = 10, 10
)

// wave is a rollout of the past.
type wave struct {
	id, name, version string
	by, why           string
	ago               time.Duration // when it began
	every             time.Duration // between two batches
	state             fleet.RolloutState
	takes             func(h *host) bool
	end               func(h *host) end
	// stopped are the members that were not upgraded, since it was cancelled.
	stopped func(h *host) bool

	began   time.Time
	members []*host
	place   map[*host]int
}

// newWaves returns the rollouts of the past, oldest first.
func newWaves(o Options, hosts []*host, now time.Time) []*wave {
	const day = 24 * time.Hour
	here := func(h *host) bool { return h.health != longAway && h.health != enrolling }
	list := []*wave{
		{
			name: "All hosts to " + older, version: older, by: "ann", why: "CHG-3904", ago: 24*day + 9*time.Hour, every: 3 * time.Hour,
			state: fleet.RolloutCompleted, takes: here,
		},
		{
			name: "All hosts to " + current, version: current, by: "ben", why: "CHG-3977", ago: 8*day + 7*time.Hour, every: 3 * time.Hour,
			state: fleet.RolloutCompleted, takes: func(h *host) bool { return here(h) && h.story != behind },
		},
		{
			name: "First hosts of " + newest, version: newest, by: "ann", why: "CHG-4022", ago: day + 13*time.Hour, every: 40 * time.Minute,
			state: fleet.RolloutCompleted, takes: func(h *host) bool { return h.story == canary },
		},
		{
			name: "Memory leak: main ring to " + broken, version: broken, by: "ben", why: "CHG-4029: collectors are killed for want of memory", ago: 15 * time.Hour, every: 25 * time.Minute,
			state: fleet.RolloutCancelled, takes: func(h *host) bool { return h.story == rolled || here(h) && h.story == plain && h.number%6 == 0 },
			end: func(h *host) end { return rollback(h.luck(broken)) }, stopped: func(h *host) bool { return h.story != rolled },
		},
	}
	for i, w := range list {
		rng := rand.New(rand.NewPCG(o.Seed, uint64(1_000_000_000+i)))
		w.id, w.began, w.place = documentID(rng), now.Add(-w.ago), map[*host]int{}
		if w.end == nil {
			w.end = func(*host) end { return end{} }
		}
		if w.stopped == nil {
			w.stopped = func(*host) bool { return false }
		}
		for _, stopped := range []bool{false, true} { // those that were stopped come last
			for _, h := range hosts {
				if h.number < waveOf && w.takes(h) && w.stopped(h) == stopped && h.enrolled > w.ago {
					w.place[h] = len(w.members)
					w.members = append(w.members, h)
				}
			}
		}
	}
	return list
}

// documentID returns an id in the form of the server's own.
func documentID(rng *rand.Rand) string {
	const letters = "abcdefghijklmnopqrstuvwxyz234567"
	b := make([]byte, 26)
	for i := range b {
		b[i] = letters[rng.IntN(len(letters))]
	}
	return string(b)
}

// batch returns the batch of a member.
func (w *wave) batch(place int) int {
	first := min(canaries, len(w.members))
	if place < first {
		return 0
	}
	return 1 + (place-first)*parts/(len(w.members)-first)
}

func (w *wave) actionID(batch int) string { return fmt.Sprintf("%s-g1-%d", w.id, batch+1) }

// at returns when a batch began.
func (w *wave) at(batch int) time.Time { return w.began.Add(time.Duration(batch) * w.every) }

// order is what the agents of a batch are ordered.
func (w *wave) order(batch int) order {
	return order{
		actionID: w.actionID(batch), at: w.at(batch), to: w.version,
		by: fleet.Requester{By: w.by, Why: w.why, Rollout: &fleet.RolloutRef{ID: w.id, Name: w.name}},
	}
}

// actions returns the actions of the batches that were begun.
func (w *wave) actions() []fleet.Action {
	var out []fleet.Action
	for place, h := range w.members {
		if w.stopped(h) {
			continue
		}
		b := w.batch(place)
		if len(out) == 0 || out[len(out)-1].ID != w.actionID(b) {
			out = append(out, fleet.Action{
				ID: w.actionID(b), Type: agentapi.ActionUpgrade, Data: upgradeData(w.version, ""), CreatedAt: w.at(b), CreatedBy: w.by,
				Rollout: &fleet.RolloutRef{ID: w.id, Name: w.name},
			})
		}
		last := &out[len(out)-1]
		last.Agents, last.Actioned = append(last.Agents, h.id), last.Actioned+1
	}
	return out
}

func upgradeData(version, component string) json.RawMessage {
	d := agentapi.UpgradeData{Version: version}
	if component != "" {
		d.Component = &agentapi.ComponentData{Name: component, Runtime: "process"}
	}
	b, err := json.Marshal(d)
	if err != nil {
		panic(err) // our own types always encode
	}
	return b
}

// target returns the target of a member, whose upgrade is r.
func (w *wave) target(h *host, from string, r *fleet.HistoryRecord) fleet.Target {
	place := w.place[h]
	t := fleet.Target{
		RolloutID: w.id, AgentID: h.id, Hostname: h.name, Batch: w.batch(place), Place: place, From: from, To: w.version, Site: h.site,
	}
	move := func(s fleet.TargetState, code fleet.ReasonCode, at time.Time, text string) {
		t.State, t.Code, t.Error = s, code, text
		t.History = append(t.History, fleet.TargetChange{At: at, State: s, Code: code, Error: text})
	}
	if r == nil {
		at := w.ended()
		move(fleet.TargetCancelled, fleet.WhyOperator, at, "")
		t.EndedAt = &at
		return t
	}
	t.ActionID, t.Attempts, t.OfferedAt, t.EndedAt = r.ActionID, 1, &r.At, r.EndedAt
	states := map[fleet.ProgressState]fleet.TargetState{
		fleet.ProgressSent: fleet.TargetOffered, fleet.ProgressDownloading: fleet.TargetUpgrading, fleet.ProgressWatching: fleet.TargetVerifying,
	}
	for _, p := range r.Phases {
		if s := states[p.State]; s != "" {
			move(s, "", p.At, "")
		}
		if p.State == fleet.ProgressWatching {
			t.ReachedAt = &p.At
		}
	}
	switch r.State {
	case fleet.ProgressRolledBack:
		move(fleet.TargetRolledBack, fleet.WhyCompensated, r.Ended(), r.Reason)
	case fleet.ProgressFailed:
		move(fleet.TargetFailed, fleet.WhyReported, r.Ended(), r.Reason)
	default:
		move(fleet.TargetSucceeded, fleet.WhyHealthy, r.Ended(), "")
	}
	return t
}

// ended returns when it was over.
func (w *wave) ended() time.Time {
	if w.state == fleet.RolloutCancelled {
		return w.at(2).Add(20 * time.Minute)
	}
	return w.at(w.batch(len(w.members)-1) + 1)
}

// rollout returns the document of the rollout with the targets.
func (w *wave) rollout(targets []fleet.Target) fleet.Rollout {
	ended := w.ended()
	r := fleet.Rollout{
		ID: w.id, State: w.state, Generation: 1, CreatedAt: w.began.Add(-11 * time.Minute), CreatedBy: w.by, StartedAt: &w.began, StartedBy: w.by, EndedAt: &ended,
		Pin: &fleet.Pin{Hash: "sha256:" + hashOf(w.id) + hashOf(w.name)[:24], Targets: len(targets), At: w.began},
		Plan: fleet.Plan{
			Name: w.name, Version: w.version, Select: fleet.Selector{Policies: policyIDs()},
			Migration: fleet.Migration{Type: fleet.MigrationNone}, LateJoiners: fleet.LateIgnore,
			Strategy: fleet.Strategy{Kind: fleet.Canary, BatchPercent: 10, Canary: &fleet.CanaryRule{Size: canaries, Pick: fleet.PickStratified, Over: []string{"os", "arch", "version"}}},
			Limits:   fleet.Limits{MaxParallel: 500, Per: []fleet.LabelLimit{{Label: fleet.SiteLabel, Max: 100}}},
			Failure:  fleet.FailureRule{Percent: new(5.0)},
			Health: fleet.HealthRule{
				Wait: fleet.Duration(fleet.DefaultHealthWait), StaleAfter: fleet.Duration(fleet.DefaultStaleAfter), SilentAfter: fleet.Duration(fleet.DefaultSilentAfter), MaxCrashes: 3,
			},
			Pace: fleet.Pace{Soak: fleet.Duration(w.every / 2), OfferFor: fleet.Duration(fleet.DefaultOfferFor), WaitFor: fleet.Duration(fleet.DefaultWaitFor)},
		},
		Policies: policyIDs(),
	}
	if w.state == fleet.RolloutCancelled {
		r.Stop = &fleet.Stop{Kind: fleet.StopThreshold, Text: "more than 5 % of the targets attempted have failed", By: "muster", At: ended.Add(-15 * time.Minute), Batch: 1}
	}
	for _, t := range targets {
		for len(r.Batches) <= t.Batch { // a batch may have lost all of its hosts
			r.Batches = append(r.Batches, fleet.Batch{Index: len(r.Batches), Kind: fleet.BatchRegular})
		}
		b := &r.Batches[t.Batch]
		b.Counts.Add(t.State)
		r.Counts.Add(t.State)
		if t.OfferedAt != nil && b.StartedAt == nil {
			at, done := w.at(t.Batch), w.at(t.Batch).Add(w.every/2)
			b.StartedAt, b.EndedAt, b.ClearedAt = &at, &done, new(w.at(t.Batch+1))
		}
	}
	if len(r.Batches) > 0 {
		r.Batches[0].Kind = fleet.BatchCanary
	}
	return r
}

func policyIDs() []string {
	var ids []string
	for _, r := range roles {
		ids = append(ids, r.policy)
	}
	return ids
}
