package declare

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/preview"
	"github.com/muster-fleet/muster/server/rollout/spec"
)

// Diff is what applying an object would do.
type Diff struct {
	Before *Object `json:"before,omitempty"`
	After  Object  `json:"after"`
	spec.DiffResult
	Warnings []string `json:"-"`
}

// Diff compares an object, as for Apply, with the stored one, and previews its rollouts.
func (s *Service) Diff(ctx context.Context, name string, body []byte, mode spec.Mode) (Diff, error) {
	a, err := s.Apply(ctx, name, body, Options{Mode: mode, DryRun: true})
	if err != nil {
		return Diff{}, err
	}
	d := Diff{After: a.Object, Warnings: a.Warnings}
	d.HashAfter, d.Changed, d.Previews = spec.Hash(&a.Fleet), []string{}, []spec.PartPreview{}
	var old *Object
	if !a.Created {
		o, err := s.Get(ctx, a.Metadata.Name)
		if err != nil {
			return d, err
		}
		old = &o
		d.Before, d.HashBefore = old, spec.Hash(&old.Fleet)
	}
	d.Changed = append(d.Changed, changes(old, a.Object)...)
	d.decide(old)
	if !d.StartsRollout {
		return d, nil
	}
	for _, p := range a.Spec.Parts() {
		part, err := s.preview(ctx, &a.Fleet, p, d.replaced(old), d.retries(old))
		if err != nil {
			return d, err
		}
		d.Previews = append(d.Previews, part)
	}
	return d, nil
}

// decide says whether a rollout starts.
func (d *Diff) decide(old *Object) {
	if old == nil {
		d.StartsRollout, d.Reason = true, "the object is new"
	} else {
		st := &old.Status
		requested, same := d.HashAfter == st.RequestedRolloutHash, d.HashAfter == d.HashBefore
		switch {
		case requested && same && len(d.Changed) == 0:
			d.Reason = "nothing changes"
		case requested && same:
			d.Reason = "nothing of what changes starts a rollout: it takes effect in the rollout under way, or in the next one"
		case requested:
			d.Reason = "this is what was requested last"
		case same:
			d.StartsRollout, d.Reason = true, "the server has not begun with what is stored"
		default:
			d.StartsRollout, d.Reason = true, "the rollout hash changes, because of "+sentence(spec.Triggering(d.Changed))
		}
		if c := st.Condition(spec.Promoting); d.StartsRollout && c != nil && c.Status == spec.True && st.Rollout != nil {
			d.WaitsFor = fmt.Sprintf("rollout %s is promoting, and goes on to its end first", st.Rollout.ID)
		}
	}
	if d.StartsRollout && d.After.Spec.Paused {
		d.WaitsFor = "the object is paused"
	}
}

// replaced returns the rollout under way of an object that one of the new spec takes the place of, or
// waits for; its agents are free by then. It is empty if there is none.
func (d *Diff) replaced(old *Object) string {
	if old == nil || old.Status.Rollout == nil || old.Status.Rollout.State.Ended() {
		return ""
	}
	return old.Status.Rollout.ID
}

// retries reports whether another value of the annotation force-rollout includes the agents that failed
// before, as the loop decides it.
func (d *Diff) retries(old *Object) bool {
	value := d.After.Metadata.Annotations[spec.ForceRolloutAnnotation]
	return old != nil && value != "" && value != old.Metadata.Annotations[spec.ForceRolloutAnnotation]
}

// preview previews the rollout of a part. A refusal is part of the preview. As in the rollout that
// is made, agents that run a later version go down, if their hosts can.
func (s *Service) preview(ctx context.Context, f *spec.Fleet, p spec.Part, replaces string, retries bool) (spec.PartPreview, error) {
	out := spec.PartPreview{Part: p.Name(), Version: p.Version}
	plan := f.Plan(p)
	plan.RetryFailed = retries
	if resolved, err := s.Rollouts.ResolveDeclared(ctx, plan); err == nil {
		out.Version = resolved.Version
	}
	pre, err := s.Rollouts.DryRunDeclared(ctx, f.Metadata.Name, replaces, plan)
	if err == nil && slices.ContainsFunc(pre.Skipped, func(a fleet.SkippedAgent) bool { return a.Cause == fleet.CauseNewer }) {
		out.Forced, plan.Force = true, true
		pre, err = s.Rollouts.DryRunDeclared(ctx, f.Metadata.Name, replaces, plan)
	}
	if err != nil {
		if kind := fleet.KindOf(err); kind == fleet.Internal || kind == fleet.Unavailable {
			return out, err
		}
		out.Error = strings.ReplaceAll(err.Error(), "[request body.plan.", "[")
		return out, nil
	}
	out.Targets, out.Batches, out.Skipped = len(pre.Targets), len(pre.Batches), len(pre.Skipped)
	out.LeftOut, out.Warnings = preview.LeftOut(pre.Skipped), pre.Warnings
	if len(pre.Refusals) > 0 {
		out.Error = pre.Refusals[0].Text
	}
	if out.Targets > 0 {
		out.Seconds, out.DurationText = pre.Estimate.D().Seconds(), pre.Estimate.String()
	}
	return out, nil
}

// canonical returns the canonical JSON of a value.
func canonical(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	value := jsontext.Value(text)
	err = value.Canonicalize()
	return value, err
}
