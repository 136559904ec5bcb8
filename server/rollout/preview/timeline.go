package preview

import (
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
)

// usualUpgrade is how long an upgrade takes if none of this fleet is known: a package
// of 100 MB over 10 Mbit/s, and a restart.
const usualUpgrade = 2 * time.Minute

// usualSwitch is how long an upgrade takes whose version is staged: a restart and a check-in.
const usualSwitch = 10 * time.Second

// maxEstimate bounds the timeline: later times would be guesses, and stepping through
// windows up to them would take long.
const maxEstimate = 365 * 24 * time.Hour

// schedule estimates when the batches begin and end. A batch is upgraded in waves of as
// many agents as the limits allow; a wave begins only while offers are allowed.
func (s *builder) schedule(pre *fleet.Preview) {
	verify := plan.VerifyTime(s.plan, s.observes)
	step := s.upgradeTime() + verify
	if pre.Staging != nil && pre.Staging.Cannot == 0 {
		step = usualSwitch + verify
	}
	fastest := verify
	if len(s.fleet.Durations) > 0 {
		fastest += max(0, slices.Min(s.fleet.Durations))
	}
	var least time.Duration
	t, horizon := s.now, s.now.Add(maxEstimate)
	if pre.Staging != nil {
		t = t.Add(pre.Staging.Estimate.D())
	}
	first := 0
	for i := range pre.Batches {
		b := &pre.Batches[i]
		n := waves(s.plan, pre.Targets[first:first+b.Size])
		first += b.Size
		if t.Before(horizon) {
			b.StartAt, b.EndAt = s.run(t, n, step, horizon)
		} else {
			b.StartAt, b.EndAt = horizon, horizon
		}
		t = b.EndAt
		least = addBounded(least, n, fastest)
		if i < len(pre.Batches)-1 {
			gap := plan.Gap(s.plan, b.Kind)
			t = t.Add(gap)
			least = addBounded(least, 1, gap)
		}
	}
	pre.AtLeast = fleet.Duration(least)
	if n := len(pre.Batches); n > 0 {
		pre.Estimate = fleet.Duration(pre.Batches[n-1].EndAt.Sub(s.now))
		if !pre.Batches[n-1].EndAt.Before(horizon) {
			s.warnf("within a year the rollout does not end: look at max_parallel, soak, windows and freezes; times after that are not estimated")
		}
	}
}

// run returns when the first of n waves from t on begins, and when the last ends.
func (s *builder) run(t time.Time, n int, step time.Duration, horizon time.Time) (start, end time.Time) {
	for t.Before(horizon) {
		open, until := plan.OfferableAt(s.plan, s.fleet.Freezes, t)
		if !open {
			if f := plan.FrozenBetween(s.fleet.Freezes, t, t); f != nil {
				if warning := plan.FreezeWarning(f); !slices.Contains(s.warnings, warning) {
					s.warnings = append(s.warnings, warning)
				}
			}
			if until.IsZero() || !until.After(t) {
				break // it never opens
			}
			t = until
			continue
		}
		if start.IsZero() {
			start = t
		}
		ends := horizon
		if !until.IsZero() && until.Before(horizon) {
			ends = until
		}
		begun := n
		if step > 0 {
			begun = min(n, max(1, int((ends.Sub(t)+step-1)/step)))
		}
		n -= begun
		t = t.Add(time.Duration(begun) * step)
		if n == 0 {
			return start, earlier(t, horizon)
		}
	}
	if start.IsZero() {
		start = horizon
	}
	return start, horizon
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// addBounded returns d + n×step, or maxEstimate if that is less.
func addBounded(d time.Duration, n int, step time.Duration) time.Duration {
	if step > 0 && time.Duration(n) > (maxEstimate-min(d, maxEstimate))/step {
		return maxEstimate
	}
	return d + time.Duration(n)*step
}

// waves returns into how many waves the limits divide the targets of a batch.
func waves(p *fleet.Plan, targets []fleet.PreviewTarget) int {
	if plan.Together(p.Strategy.Kind) {
		return 1
	}
	n := parts(len(targets), plan.MaxParallel(p))
	for i, limit := range p.Limits.Per {
		if limit.Max <= 0 {
			continue
		}
		of := map[string]int{}
		for j := range targets {
			if i >= len(targets[j].Values) {
				continue
			}
			if v := targets[j].Values[i]; v != "" {
				of[v]++
				n = max(n, parts(of[v], limit.Max))
			}
		}
	}
	return n
}

func parts(n, size int) int { return (n + size - 1) / size }

// staging returns what the targets stage before the first batch, nil without Plan.Stage. All of
// them load the version at the same time.
func (s *builder) staging(picks []*pick) *fleet.PreviewStaging {
	if s.plan.Stage != fleet.StageAhead {
		return nil
	}
	var out fleet.PreviewStaging
	for _, p := range picks {
		switch {
		case p.HasStaged(s.plan.Component, s.plan.Version):
			out.Staged++
		case p.StagedVersions == nil:
			out.Cannot++
		default:
			out.Load++
		}
	}
	if out.Load > 0 {
		out.Estimate = fleet.Duration(s.upgradeTime())
	}
	return &out
}

// upgradeTime returns the median of past upgrades.
func (s *builder) upgradeTime() time.Duration {
	if len(s.fleet.Durations) == 0 {
		return usualUpgrade
	}
	took := slices.Sorted(slices.Values(s.fleet.Durations))
	return max(0, took[len(took)/2])
}
