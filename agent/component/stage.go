package component

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/muster-fleet/muster/agent/primitive"
	"github.com/muster-fleet/muster/agent/request"
	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/packaging/pkg/trust"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/watcher/handoff"
)

const (
	// A stage has a journal of its own, as upgrades go on to install the version.
	stageJournalFile = "stage-journal"
	stageJournalKind = "component-stage"

	// recordStage is the name of the step in which the version is recorded as staged.
	recordStage   = "record_stage"
	recordTimeout = 30 * time.Second // one look at each of its files, and a record
)

// stageJournal is the journal of a stage.
type stageJournal struct {
	primitive.Journal
	ActionID string `json:"action_id,omitempty"`
	Force    bool   `json:"force,omitempty"`
	Local    bool   `json:"local,omitempty"`
	// Interrupted counts how often it was interrupted before.
	Interrupted int `json:"interrupted,omitempty"`
}

func stageFile(d disk.Disk, dir string) steps.File {
	return steps.File{Disk: d, Op: op, Path: filepath.Join(dir, stageJournalFile), Kind: stageJournalKind, Version: journalVersion}
}

// Stage fetches, verifies and unpacks a version of a component, and changes nothing that runs.
// It returns nil if the version is on the host and intact. A later upgrade to it fetches nothing.
// Otherwise the error is steps.ErrStopping if the stage is to begin again later, or a
// [*request.Failure] that left the host as before. An upgrade of the component that begins ends it. A component must not be
// staged twice at the same time; see AcceptStage.
func (m *Manager) Stage(ctx context.Context, r request.Request) error {
	c := m.component(r.Component.Name)
	if c == nil {
		return failure(primitive.AcquireArtifact, m.unknown(r.Component.Name), false)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if !c.beginStage(cancel) {
		return c.notStaged(r, failure(primitive.AcquireArtifact, errBusy, true))
	}
	defer c.endStage()
	if j, err := steps.Read[stageJournal](stageFile(m.Disk, c.dir)); err == nil && j != nil && j.Desired.ID == r.Component.UpgradeID {
		r.Interrupted = j.Interrupted + 1 // the server's orders are in the queue, which does not count
	}
	if err := c.recoverStage(); err != nil {
		return c.notStaged(r, failure(primitive.AcquireArtifact, err, true))
	}
	err := c.stage(ctx, r)
	if f := (*request.Failure)(nil); errors.As(err, &f) && !f.Transient {
		c.m.Log.Warn("a version of a component is not staged", "component", c.name, "version", r.Version, "error", err)
	}
	return err
}

// AcceptStage reports a stage that is about to begin, or returns [request.ErrBusy] while the component is
// upgraded or staged.
func (m *Manager) AcceptStage(r request.Request) error {
	c := m.component(r.Component.Name)
	if c == nil {
		return m.unknown(r.Component.Name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running != "" || c.staging != nil && !c.staging.State.Ended() {
		return errBusy
	}
	if err := c.checkOther(r.Version, &c.state); err != nil {
		return err
	}
	c.staging = &agentapi.UpgradeDetails{TargetVersion: r.Version, ActionID: r.ActionID, State: agentapi.UpgradeRequested}
	return nil
}

// beginStage stores what ends the stage. It returns false while the component is upgraded or
// staged.
func (c *component) beginStage(cancel context.CancelCauseFunc) bool {
	select {
	case c.stages <- struct{}{}:
	default:
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancelStage = cancel
	return true
}

func (c *component) endStage() {
	c.mu.Lock()
	c.cancelStage = nil
	c.mu.Unlock()
	<-c.stages
}

// noStage ends the stage under way, and keeps others from beginning until end is called.
func (c *component) noStage(ctx context.Context) (end func(), err error) {
	c.mu.Lock()
	if c.cancelStage != nil {
		c.cancelStage(request.ErrOvertaken)
	}
	c.mu.Unlock()
	select {
	case c.stages <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	end = func() { <-c.stages }
	if err := c.recoverStage(); err != nil {
		end()
		return nil, failure(primitive.BackupState, err, true)
	}
	return end, nil
}

// stage is a stage under way.
type stage struct {
	c      *component
	r      request.Request
	j      *stageJournal
	run    *steps.Run
	change *primitive.Change
}

func (c *component) newStage(j *stageJournal) *stage {
	s := &stage{c: c, r: request.Request{ActionID: j.ActionID, Force: j.Force, Local: j.Local, Component: agentapi.ComponentData{Name: c.name}}, j: j}
	allow := func(version string, e *trust.Expectation) error {
		if err := c.allow(s.r, version, e); err != nil {
			return err
		}
		return s.fits(handoff.Version{Archive: e.Archive, Bytes: e.Unpacked, StagedAt: time.Now().UTC()})
	}
	s.change = c.newChange(&j.Journal, allow, func() error { return s.run.Save() }, func(meta agentapi.UpgradeMetadata) {
		s.report(agentapi.UpgradeDownloading, meta, true)
	})
	s.run = &steps.Run{
		Steps:   append(s.change.StageSteps(), steps.Step{Name: recordStage, Timeout: recordTimeout, Do: s.record, Undo: s.undoRecord}),
		Journal: j, File: stageFile(c.m.Disk, c.dir), Log: c.m.Log.With("component", c.name),
		Begins: func(step steps.Step) {
			if state, ok := upgradeStates[step.Name]; ok {
				s.report(state, agentapi.UpgradeMetadata{}, false)
			}
		},
	}
	return s
}

func (s *stage) report(state agentapi.UpgradeState, meta agentapi.UpgradeMetadata, progress bool) {
	c := s.c
	d := agentapi.UpgradeDetails{TargetVersion: s.j.Desired.Version, ActionID: s.j.ActionID, State: state, Metadata: meta}
	c.mu.Lock()
	c.staging = &d
	c.mu.Unlock()
	if !progress {
		c.m.Log.Info("component stage", "component", c.name, "state", state, "version", d.TargetVersion)
	}
	c.m.Changed(progress)
}

func (c *component) stage(ctx context.Context, r request.Request) error {
	c.mu.Lock()
	policy, problem, is := c.policy, c.problem, c.state.clone()
	c.mu.Unlock()
	to := desired(r, policy)
	to.Image = cmp.Or(to.Image, policy.Artifact.Image)
	if err := c.mayStage(r, to, policy, problem, &is); err != nil {
		return c.notStaged(r, failure(primitive.AcquireArtifact, err, false))
	}
	if err := c.makeFolder(); err != nil {
		return c.notStaged(r, failure(primitive.AcquireArtifact, err, true))
	}
	s := c.newStage(&stageJournal{
		Journal:  primitive.Journal{Desired: to, From: is.Installed},
		ActionID: r.ActionID, Force: r.Force, Local: r.Local, Interrupted: r.Interrupted,
	})
	if step, err := s.run.Do(ctx); err != nil {
		return s.fail(ctx, r, step, err)
	}
	c.mu.Lock()
	c.staging = nil
	c.mu.Unlock()
	c.m.Log.Info("a version of a component is staged", "component", c.name, "version", r.Version)
	if err := s.conclude(); err != nil {
		c.m.Log.Warn("what is left of a stage is not removed yet", "component", c.name, "version", r.Version, "error", err)
	}
	c.clean(ctx) // versions that had to make room
	c.m.Changed(false)
	return nil
}

// mayStage returns an error for a stage that cannot succeed.
func (c *component) mayStage(r request.Request, to primitive.Desired, policy agentapi.PolicyComponent, problem string, s *state) error {
	switch {
	case r.Interrupted > request.MaxInterrupted:
		return request.ErrInterrupted
	case problem != "":
		return errors.New(problem)
	case s.Broken != "":
		return fmt.Errorf("nothing is done with the component: %s", s.Broken)
	case to.Runtime != policy.Runtime:
		return fmt.Errorf("component %s runs with %s by its policy, and the order says %s", c.name, policy.Runtime, to.Runtime)
	case c.m.Keep.Staged == 0:
		return errors.New("this host keeps no staged versions: raise upgrade.keep.staged in agent.yml")
	}
	return c.checkOther(r.Version, s)
}

// checkOther returns an error if the version is the installed one. Two builds of a snapshot have
// one name.
func (c *component) checkOther(version string, s *state) error {
	if _, snapshot := manifest.SplitSnapshot(version); version == s.installed() && !snapshot {
		return fmt.Errorf("version %s of %s is installed here already", version, c.name)
	}
	return nil
}

// fail undoes a stage whose step has failed.
func (s *stage) fail(ctx context.Context, r request.Request, step string, why error) error {
	if errors.Is(why, steps.ErrStopping) || errors.Is(context.Cause(ctx), steps.ErrStopping) {
		if s.j.Interrupted < request.MaxInterrupted {
			return steps.ErrStopping // the journal stays, and the next process begins again
		}
		why = request.ErrInterrupted
	}
	f := failure(step, why, transient(step, why))
	s.j.KeepDownload = f.Transient || errors.Is(why, request.ErrOvertaken) // the upgrade may need it, and removes it
	if err := s.run.Fail(step, why); err != nil {
		f = failure(step, fmt.Errorf("%w; what it has left is not removed yet: %w", why, err), true)
	}
	return s.c.notStaged(r, f)
}

// notStaged reports a stage that failed.
func (c *component) notStaged(r request.Request, f *request.Failure) error {
	c.mu.Lock()
	c.staging = new(f.Details(r))
	c.mu.Unlock()
	c.m.Changed(false)
	return f
}

// record records the version as staged. Older ones make room for it.
func (s *stage) record(context.Context) error {
	v := besides(s.j.To)
	v.Bytes, v.StagedAt = s.c.size(v.Home), time.Now().UTC()
	if err := s.fits(v); err != nil {
		return err
	}
	return s.c.change(func(is *state) { is.Stage(v, s.c.m.Keep) })
}

// fits returns an error if a version does not fit beside those that stay when others have made
// room. Before it is fetched its home is not known.
func (s *stage) fits(v handoff.Version) error {
	s.c.mu.Lock()
	on := s.c.state.Versions
	s.c.mu.Unlock()
	_, err := s.r.StageIn(&on, v, s.c.m.Keep)
	return err
}

// undoRecord removes the version from the record. One that was on the host before stays.
func (s *stage) undoRecord(context.Context) error {
	if s.j.Reused {
		return nil
	}
	return s.c.change(func(is *state) { is.Remove(s.j.To.Home) })
}

// conclude removes the archive, which is not needed any more, and the journal.
func (s *stage) conclude() error {
	return errors.Join(s.change.DiscardDownload(), s.run.File.Remove())
}

// recoverStage undoes or finishes the stage that an earlier process left. The caller keeps others
// from beginning.
func (c *component) recoverStage() error {
	file := stageFile(c.m.Disk, c.dir)
	j, err := steps.Read[stageJournal](file)
	if errors.Is(err, disk.ErrDamaged) {
		c.m.Log.Warn("the journal of a component's stage was unreadable", "component", c.name, "error", err)
		return file.Remove()
	}
	if err != nil {
		return err
	}
	if j == nil {
		return file.RemoveCopies()
	}
	s := c.newStage(j)
	c.mu.Lock()
	done := !j.Undoing && j.HasBegun(recordStage) && c.state.has(j.To.Home)
	c.mu.Unlock()
	if done {
		return s.conclude()
	}
	j.KeepDownload = true
	return s.run.Undo()
}

// Interrupted returns the stages that were requested on the host and that an earlier process of
// the agent left unfinished, to be done again: they are in no queue.
func (m *Manager) Interrupted() []request.Request {
	var out []request.Request
	for _, c := range m.all() {
		j, err := steps.Read[stageJournal](stageFile(m.Disk, c.dir))
		if err != nil || j == nil || !j.Local || j.Undoing || j.Interrupted >= request.MaxInterrupted {
			continue
		}
		c.mu.Lock()
		busy := c.cancelStage != nil
		c.mu.Unlock()
		if !busy {
			out = append(out, request.Request{
				ID: j.Desired.ID, Local: true, Version: j.Desired.Version, SourceURI: j.Desired.SourceURI, Force: j.Force, Interrupted: j.Interrupted + 1,
				Component: agentapi.ComponentData{Name: c.name, UpgradeID: j.Desired.ID},
			})
		}
	}
	return out
}

// Staging returns the stage of a component that is under way, or the last one if it failed.
func (m *Manager) Staging(name string) *agentapi.UpgradeDetails {
	c := m.component(name)
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.staging == nil {
		return nil
	}
	d := *c.staging
	return &d
}
