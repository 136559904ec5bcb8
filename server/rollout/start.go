package rollout

import (
	"context"
	"fmt"
	"slices"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/rollout/preview"
)

// A start writes in this order, so that starting again after a crash at any point
// completes it:
//
//  1. the preview, under its hash
//  2. the locks of its policies
//  3. the draft's Pin: starting again then starts this preview
//  4. the targets
//  5. the entry of the audit trail
//  6. the state running: only now does the reconciler see it
const (
	// startTries bounds how often a start is retried because the draft was changed
	// meanwhile, for example by a preview.
	startTries = 3
	// targetChunk bounds the targets of one durable write.
	targetChunk = 10_000
)

// Start starts a draft as previewed. A *DriftError reports how the fleet has changed
// since; with acceptDrift the rollout starts nevertheless, with the fleet as it is now.
// A repeated call returns the started rollout.
func (s *Service) Start(ctx context.Context, id, hash string, acceptDrift bool, req Request) (fleet.Rollout, error) {
	if err := req.Check(); err != nil {
		return fleet.Rollout{}, err
	}
	if hash == "" {
		return fleet.Rollout{}, fleet.FieldError("body.hash", "is missing: preview the rollout, and start it with the preview's hash")
	}
	for try := 1; ; try++ {
		r, err := s.startOnce(ctx, id, hash, acceptDrift, req)
		if err == nil || !isRace(err) || try == startTries {
			return r, err
		}
	}
}

// Begin starts a draft as previewed now, for those who carry out plans by themselves. ready refuses
// what its caller does not want to start. A start that a crash interrupted is completed without asking,
// and of a rollout that has begun nothing is done; the preview is nil then.
func (s *Service) Begin(ctx context.Context, r *fleet.Rollout, acceptDrift bool, ready func(*fleet.Preview) error, req Request) (*fleet.Preview, error) {
	if r.State != fleet.RolloutDraft {
		return nil, nil //nolint:nilnil // as documented
	}
	if r.Pin != nil {
		_, err := s.Start(ctx, r.ID, r.Pin.Hash, acceptDrift, req)
		return nil, err
	}
	pre, err := s.Preview(ctx, r.ID)
	if err == nil {
		err = ready(&pre)
	}
	if err == nil {
		_, err = s.Start(ctx, r.ID, pre.Hash, acceptDrift, req)
	}
	return &pre, err
}

// raceError reports that another writer changed the rollout's document.
type raceError struct{ error }

func (e raceError) Unwrap() error { return e.error }

func isRace(err error) bool {
	_, ok := err.(raceError) //nolint:errorlint // it is never wrapped
	return ok
}

func race(err error) error {
	if err != nil && fleet.KindOf(err) == fleet.Conflict {
		return raceError{err}
	}
	return err
}

func (s *Service) startOnce(ctx context.Context, id, hash string, acceptDrift bool, req Request) (fleet.Rollout, error) {
	r, err := s.Get(ctx, id)
	if err != nil {
		return r, err
	}
	if err := plan.CheckKnown(&r); err != nil {
		return r, err
	}
	if r.Pin != nil && r.Pin.Hash != hash && !acceptDrift {
		return r, fleet.Errorf(fleet.Conflict, "%s was started with preview %s, not with %s: make another rollout for another plan", plan.Title(&r), r.Pin.Hash, hash)
	}
	switch {
	case r.State != fleet.RolloutDraft:
		return r, nil
	case r.RollbackOf != "":
		return r, interruptedRollback(&r)
	}
	var pre fleet.Preview
	if r.Pin == nil {
		pre, err = s.agreed(ctx, &r, hash, acceptDrift, req)
	} else {
		// An interrupted start. Its targets may exist, so the same preview is started;
		// agents that have changed since are refused one by one.
		pre, err = s.GetPreview(ctx, r.Pin.Hash)
	}
	if err == nil && r.Pin == nil { // the agents of an interrupted start were free
		err = s.checkOwned(ctx, &r, req)
	}
	if err != nil {
		return r, err
	}
	return s.begin(ctx, r, pre, "", fleet.EventRolloutStarted, req)
}

// agreed previews the draft now. It returns an error unless the hash is the given one,
// or drift is accepted, and the rollout may start.
func (s *Service) agreed(ctx context.Context, r *fleet.Rollout, hash string, acceptDrift bool, req Request) (fleet.Preview, error) {
	pre, err := s.preview(ctx, r, req)
	if err != nil {
		return pre, err
	}
	if pre.Hash != hash && !acceptDrift {
		old, err := s.GetPreview(ctx, hash)
		if err != nil {
			return pre, err
		}
		if err := s.keep(ctx, r.ID, pre); err != nil {
			return pre, err
		}
		return pre, &DriftError{Drift: preview.Compare(old, pre), Now: pre}
	}
	if len(pre.Refusals) > 0 {
		return pre, pre.Refusals[0].Err()
	}
	return pre, nil
}

// begin starts a draft. It takes over the locks of the rollout from.
func (s *Service) begin(ctx context.Context, r fleet.Rollout, pre fleet.Preview, from, typ string, req Request) (fleet.Rollout, error) {
	now := s.Now.UTC()
	if err := s.putPreview(ctx, pre, false); err != nil {
		return r, err
	}
	policies := make([]string, 0, 8)
	for _, t := range pre.Targets {
		if !slices.Contains(policies, t.Policy) {
			policies = append(policies, t.Policy)
		}
	}
	slices.Sort(policies)
	if err := s.takeLocks(ctx, &r, policies, from, now); err != nil {
		return r, err
	}
	batches, counts := batchesOf(pre)
	started := r
	started.Generation++
	if err := s.record(ctx, &started, "start", req, fmt.Sprintf("started it for %d agents in %d batches", counts.Total, len(batches)), now); err != nil {
		return r, err
	}
	if r.Pin == nil {
		r.Pin = &fleet.Pin{Hash: pre.Hash, Targets: len(pre.Targets), At: now}
		r.Policies = policies
		r.Batches, r.Counts = batches, counts
		var err error
		if r.Revision, err = s.Store.Rollouts().Update(ctx, r); err != nil {
			return r, race(err)
		}
	}
	for chunk := range slices.Chunk(targetsOf(r.ID, pre), targetChunk) {
		if err := s.Store.Targets().Create(ctx, chunk); err != nil {
			return r, err
		}
	}
	for _, hash := range r.Previews {
		if hash == r.Pin.Hash {
			continue
		}
		if err := s.dropPreview(ctx, r.ID, hash); err != nil {
			return r, err
		}
	}
	r.Previews = []string{r.Pin.Hash}
	r.State, r.StartedAt, r.StartedBy = fleet.RolloutRunning, &now, req.Actor
	r.Generation++
	if _, err := s.Store.Rollouts().Update(ctx, r); err != nil {
		return r, race(err)
	}
	s.publish(ctx, typ, &r, req, now)
	s.signal()
	return r, nil
}

func batchesOf(pre fleet.Preview) ([]fleet.Batch, fleet.Counts) {
	batches := make([]fleet.Batch, len(pre.Batches))
	for i, b := range pre.Batches {
		batches[i] = fleet.Batch{Index: b.Index, Kind: b.Kind, Ring: b.Ring, Counts: fleet.Counts{Total: b.Size, Pending: b.Size}}
	}
	return batches, fleet.Counts{Total: len(pre.Targets), Pending: len(pre.Targets)}
}

func targetsOf(id string, pre fleet.Preview) []fleet.Target {
	targets := make([]fleet.Target, len(pre.Targets))
	for i, t := range pre.Targets {
		targets[i] = fleet.Target{
			RolloutID: id, AgentID: t.AgentID, Hostname: t.Hostname, Batch: t.Batch, Place: i, Ring: t.Ring, State: fleet.TargetPending,
			From: t.From, To: t.To, Rollback: t.Rollback, Config: t.Config, Observes: t.Observes, Values: t.Values, Site: t.Site, Policy: t.Policy, Code: fleet.WhyNext,
		}
		if t.Batch > 0 {
			targets[i].Code = fleet.WhyBatch
		}
	}
	return targets
}

// DriftError reports that the fleet has changed since the preview.
type DriftError struct {
	Drift fleet.Drift
	Now   fleet.Preview // the preview as of now
}

func (e *DriftError) Error() string {
	d := e.Drift
	return fmt.Sprintf("the fleet has changed since the preview: %s came, %d went, %d changed; look at the new preview and start with its hash %s, or accept the drift",
		plan.Count(len(d.Added), "agent", "agents"), len(d.Removed), len(d.Changed), e.Now.Hash)
}

// Unwrap makes it a Conflict.
func (e *DriftError) Unwrap() error { return fleet.Errorf(fleet.Conflict, "%s", e.Error()) }
