package group

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/sequence"
)

// says returns the states of a group and of its members, with the errors of failed ones.
func says(g *fleet.RolloutGroup) string {
	words := []string{string(g.State)}
	for _, m := range g.Members {
		word := m.Name + "=" + string(m.State)
		if m.Error != "" && m.State != fleet.MemberCompleted {
			word += " (" + m.Error + ")"
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

func TestGroupFollowsItsMembersAfterItsEnd(t *testing.T) {
	const app = "app=completed"
	ended := noon.Add(-time.Hour)
	completed, failed := rolloutIn(fleet.RolloutCompleted), failedWith
	cancelled := func(bad int) *fleet.Rollout {
		return with(rolloutIn(fleet.RolloutCancelled), func(r *fleet.Rollout) {
			r.Counts = fleet.Counts{Total: 10, Succeeded: 5, Cancelled: 5 - bad, Failed: bad}
		})
	}
	for name, c := range map[string]struct {
		state  fleet.GroupState
		db     fleet.GroupMember
		seen   Seen
		back   bool // the group was rolled back
		want   string
		single bool // db is the only member
	}{
		"nothing was reported":    {state: fleet.GroupCompleted, db: fleet.GroupMember{State: fleet.MemberCompleted}, seen: Seen{Rollout: completed}},
		"the rollout was removed": {state: fleet.GroupCompleted, db: fleet.GroupMember{State: fleet.MemberCompleted}},
		"one host failed after all": {
			state: fleet.GroupCompleted, db: fleet.GroupMember{State: fleet.MemberCompleted}, seen: Seen{Rollout: failed(1)}, want: "partial, db=failed (1 of 10 agents failed), " + app,
		},
		"most hosts failed after all": {
			state: fleet.GroupCompleted, db: fleet.GroupMember{State: fleet.MemberCompleted}, seen: Seen{Rollout: failed(9)}, single: true,
			want: "failed, db=failed (9 of 10 agents failed, which is more than its plan tolerates)",
		},
		"the host that failed has it": {
			state: fleet.GroupPartial, db: fleet.GroupMember{State: fleet.MemberFailed, Tolerated: true, Error: "1 of 10 agents failed"}, seen: Seen{Rollout: completed}, want: "completed, db=completed, " + app,
		},
		"all that failed have it": {
			state: fleet.GroupFailed, db: fleet.GroupMember{State: fleet.MemberFailed, Error: "9 of 10 agents failed"}, seen: Seen{Rollout: completed}, single: true, want: "completed, db=completed",
		},
		"cancelled, and a host failed": {
			state: fleet.GroupCancelled, db: fleet.GroupMember{State: fleet.MemberCancelled}, seen: Seen{Rollout: cancelled(1)}, want: "cancelled, db=failed (its rollout was cancelled), " + app,
		},
		"cancelled":         {state: fleet.GroupCancelled, db: fleet.GroupMember{State: fleet.MemberCancelled}, seen: Seen{Rollout: cancelled(0)}},
		"skipped":           {state: fleet.GroupPartial, db: fleet.GroupMember{State: fleet.MemberSkipped}, seen: Seen{Rollout: cancelled(3)}},
		"stopped, and left": {state: fleet.GroupPartial, db: fleet.GroupMember{State: fleet.MemberFailed, Error: "3 of 5 failed"}, seen: Seen{Rollout: cancelled(2)}},
		"a host put the newer version back": {
			state: fleet.GroupRolledBack, back: true, db: fleet.GroupMember{State: fleet.MemberRolledBack}, seen: Seen{Rollout: completed, Rollback: failed(1)},
			want: "failed, db=rollback_failed (its rollback ended as failed: 1 of 10 agents did not go back), app=rolled_back",
		},
		"the host that could not go back did": {
			state: fleet.GroupFailed, back: true, db: fleet.GroupMember{State: fleet.MemberRollbackFailed, Error: "1 of 10"}, seen: Seen{Rollout: completed, Rollback: completed},
			want: "rolled_back, db=rolled_back, app=rolled_back",
		},
		"the host that was stuck was repaired": {
			state: fleet.GroupFailed, back: true, db: fleet.GroupMember{State: fleet.MemberRollbackFailed, NothingBack: true, Error: "1 host"}, seen: Seen{Rollout: failed(1)},
			want: "rolled_back, db=failed (1 of 10 agents failed), app=rolled_back",
		},
		"the host that was stuck still is": {
			state: fleet.GroupFailed, back: true, db: fleet.GroupMember{State: fleet.MemberRollbackFailed, NothingBack: true, Error: "1 host could not be put back: host-d1"},
			seen: Seen{Rollout: failed(1), Stuck: []string{"host-d1"}},
		},
	} {
		g := inOrder(fleet.ManualPolicy, "db", "app")
		other := Seen{Rollout: completed, Rollback: completed}
		g.State, g.EndedAt = c.state, &ended
		c.db.Name, c.db.RolloutID, c.db.EndedAt = "db", "r", &ended
		g.Members[0] = c.db
		g.Members[1].State, g.Members[1].RolloutID, g.Members[1].EndedAt = fleet.MemberCompleted, "q", &ended
		if c.back {
			g.RollingBack, g.Members[1].State = &fleet.Decision{By: "kim"}, fleet.MemberRolledBack
		}
		if c.single {
			g.Members, g.Plan.Members = g.Members[:1], g.Plan.Members[:1]
		}
		seen := []Seen{c.seen, other}[:len(g.Members)]
		next := Corrected(g, seen, noon)
		switch {
		case next == nil && c.want == "":
			continue
		case next == nil || says(next) != c.want:
			t.Errorf("%s: %s became %v, want %q", name, says(g), next, c.want)
			continue
		}
		if again := Corrected(next, seen, noon.Add(time.Hour)); again != nil {
			t.Errorf("%s: a second time it became %s", name, says(again))
		}
		if changed := next.State != c.state; (next.Generation != g.Generation) != changed || !next.EndedAt.Equal(ended) || !next.Members[0].EndedAt.Equal(ended) {
			t.Errorf("%s: generation %d, ended %v, member %v", name, next.Generation, next.EndedAt, next.Members[0].EndedAt)
		}
	}
	for _, state := range []fleet.GroupState{fleet.GroupDraft, fleet.GroupRunning, fleet.GroupPaused} {
		g := inOrder(fleet.ManualPolicy, "db")
		g.State, g.Members[0].State, g.Members[0].RolloutID = state, fleet.MemberCompleted, "r"
		if got := Corrected(g, []Seen{{Rollout: failedWith(1)}}, noon); got != nil {
			t.Errorf("%s: it became %s", state, says(got))
		}
	}
}

// However the rollouts of members are corrected: right after its end a group is as its members are, and later it
// has completed if and only if no agent of any member has failed.
func TestGroupIsAsItsMembersAreWheneverTheyChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "members")
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprintf("m%d", i)
		}
		drawn := func(i int) *fleet.Rollout {
			if bad := rapid.IntRange(0, 4).Draw(t, "failed of "+names[i]); bad > 0 {
				return failedWith(bad)
			}
			return rolloutIn(fleet.RolloutCompleted)
		}
		g := inOrder(fleet.PartialOK, names...)
		seen := make([]Seen, n)
		for now := noon; g.State.Active(); now = now.Add(time.Minute) {
			switch d := Decide(g, seen, now); {
			case d.Next != nil:
				g = d.Next
			case d.Act == sequence.Begin:
				seen[d.Member].Rollout = drawn(d.Member)
			default:
				t.Fatalf("%s: it does %q, and %s", says(g), d.Act, d.Text)
			}
		}
		if next := Corrected(g, seen, noon); next != nil {
			t.Fatalf("right after its end %s became %s", says(g), says(next))
		}
		bad, never := 0, false
		for i := range seen {
			if seen[i].Rollout == nil {
				never = true
				continue
			}
			seen[i].Rollout = drawn(i)
			bad += failures(seen[i].Rollout)
		}
		next := Corrected(g, seen, noon)
		if next == nil {
			next = g
		}
		if (next.State == fleet.GroupCompleted) != (bad == 0 && !never) {
			t.Fatalf("with %d failures %s became %s", bad, says(g), says(next))
		}
		if again := Corrected(next, seen, noon); again != nil {
			t.Fatalf("%s became %s", says(next), says(again))
		}
	})
}
