package preview

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
)

// ComputeRollback returns what a rollback would do. targets are those of the rollout
// that r rolls back. They form one batch, without canaries, since every wait would
// prolong the use of the bad version.
//
// Each goes to its last healthy version or, if that is the version to be rolled back,
// to the one that it ran when it was previewed. Hosts that still have that version
// switch to it. The others install its package, forced because it is lower.
func ComputeRollback(r *fleet.Rollout, targets []fleet.Target, f Fleet, now time.Time) (fleet.Preview, error) {
	p := plan.WithDefaults(r.Plan)
	p.Strategy = fleet.Strategy{Kind: fleet.AllAtOnce}
	s := newBuilder(r.ID, &p, f, now)
	content, err := planContent(p)
	if err != nil {
		return fleet.Preview{}, err
	}
	agents := make(map[string]*fleet.Agent, len(f.Agents))
	for i := range f.Agents {
		agents[f.Agents[i].ID] = &f.Agents[i]
	}
	targets = slices.Clone(targets)
	slices.SortFunc(targets, func(a, b fleet.Target) int {
		return cmp.Or(cmp.Compare(a.Place, b.Place), cmp.Compare(a.AgentID, b.AgentID))
	})
	byPackage := newBackCatalog(f.Catalog)
	var picks []*pick
	for i := range targets {
		t := &targets[i]
		s.matching++
		doc := agents[t.AgentID]
		if doc == nil {
			s.skipped = append(s.skipped, fleet.SkippedAgent{AgentID: t.AgentID, Hostname: t.Hostname, Version: t.To, Code: fleet.WhyGone, Text: "is not enrolled any more"})
			continue
		}
		a := plan.Candidate{Agent: doc}
		subject := doc.Of(p.Component)
		back, code, text := s.wayBack(r, t, &a, &subject, byPackage)
		if code != "" {
			s.skip(&a, &subject, code, text)
			continue
		}
		picks = append(picks, &pick{Candidate: a, target: back})
	}
	slices.SortFunc(s.skipped, func(a, b fleet.SkippedAgent) int { return cmp.Compare(a.AgentID, b.AgentID) })
	var cuts []plan.Cut
	if len(picks) > 0 {
		cuts = plan.Of(&p).Batches(&p, membersOf(picks))
	}
	pre := s.describe(cuts, picks)
	s.schedule(&pre)
	s.share(&pre)
	s.warn(&pre, picks)
	pre.Hash = previewHash(append([]byte("rollback of "+r.RollbackOf+"\n"), content...), &pre)
	return pre, nil
}

// wayBack returns how one target is rolled back, or why it is not.
func (s *builder) wayBack(r *fleet.Rollout, t *fleet.Target, a *plan.Candidate, subject *fleet.Subject, packages backCatalog) (fleet.PreviewTarget, fleet.ReasonCode, string) {
	var none fleet.PreviewTarget
	to := subject.LastHealthyVersion
	if to == "" || to == t.To {
		to = t.From
	}
	// It runs the version, and is being upgraded to another, or may be though that was called off.
	away := (subject.Upgrading() || subject.MayGoOn(s.now)) && subject.UpgradeTo != to
	left, gone := a.Left()
	switch {
	case gone:
		return none, fleet.WhyGone, left.Text
	case a.UnenrollmentStartedAt != nil:
		return none, fleet.WhyGone, "is being unenrolled"
	case to == "" || to == t.To:
		return none, fleet.WhyNoWayBack, "no version is known that was well before " + t.To
	case subject.Version == to && !away:
		return none, fleet.WhySame, fmt.Sprintf("runs %s already", to)
	case subject.Version != t.To && subject.Version != to && subject.Version != t.From:
		return none, fleet.WhyLostTarget, fmt.Sprintf("runs %s, which this rollout did not bring", plan.VersionText(subject.Version))
	}
	if text := s.lockedBy(a.PolicyID, r.RollbackOf); text != "" {
		return none, fleet.WhyLocked, text
	}
	if err := fleet.CheckInForce(s.fleet.Components[a.PolicyID], to); err != nil {
		return none, fleet.WhyInForce, err.Error()
	}
	back := s.target(a, subject)
	back.To, back.Bytes = to, 0
	if subject.Component != "" && subject.Upgrading() && subject.UpgradeFrom == to {
		// The host keeps what it runs now until it has observed the version, and then takes
		// the order to go back. If the version fails, it goes back by itself.
		back.Rollback = true
		return back, "", ""
	}
	if err := subject.CheckState(to, slices.Concat(packages[to], packages[subject.Version])); err != nil {
		return none, fleet.WhyNoWayBack, err.Error()
	}
	kept, keptErr := subject.CheckRollback(to, s.now)
	if keptErr == nil && kept == to {
		back.Rollback = true
		return back, "", ""
	}
	err := subject.CheckUpgrade(fleet.UpgradeRequest{Version: to, SourceURI: s.plan.SourceURI, Force: true}, packages[to])
	if err != nil {
		if keptErr == nil {
			keptErr = fmt.Errorf("it keeps %s, not %s", kept, to)
		}
		return none, fleet.WhyNoWayBack, fmt.Sprintf("%s, and %s", keptErr, err)
	}
	for _, p := range packages[to] {
		if p.Fits(*a.HostMetadata()) {
			back.Bytes = p.Size
			break
		}
	}
	return back, "", ""
}

// backCatalog has the packages of each version.
type backCatalog map[string]fleet.Catalog

func newBackCatalog(c fleet.Catalog) backCatalog {
	by := backCatalog{}
	for _, p := range c {
		by[p.Version] = append(by[p.Version], p)
	}
	return by
}
