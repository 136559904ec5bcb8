package component

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/muster-fleet/muster/agent/primitive"
	"github.com/muster-fleet/muster/agent/request"
	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/trust"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// observeHealth is the name of the step in which the new version is observed.
const observeHealth = "observe_health"

const (
	// sampleEvery is how often a new version is looked at.
	sampleEvery = time.Second
	// runsAgainWait shows most crashes at the start of the version before, which was observed
	// for longer when it was new.
	runsAgainWait = 5 * time.Second
	// breakingMigration is the migration after which the version before may not read the
	// component's state.
	breakingMigration = "breaking"
)

// desired returns what a request is to reach, by the policy of its component.
func desired(r request.Request, p agentapi.PolicyComponent) primitive.Desired {
	c := r.Component
	return primitive.Desired{
		ID: c.UpgradeID, Component: c.Name, Runtime: cmp.Or(c.Runtime, p.Runtime), Version: r.Version, SourceURI: r.SourceURI,
		Checksum: c.Checksum, Image: c.Image, Files: c.Files, Rollback: r.Rollback, Migration: c.Migration, ServerConfig: p.ServerConfig,
	}
}

func failure(step string, err error, transient bool) *request.Failure {
	return &request.Failure{State: upgradeStates[step], Step: step, Err: err, Transient: transient}
}

// Upgrade does an upgrade, or continues it if an earlier process has begun it. It returns nil
// once the new version has been healthy for its wait, or if the upgrade was done before.
// Otherwise the error is a [*request.Failure], or steps.ErrStopping if a later process has to continue.
func (m *Manager) Upgrade(ctx context.Context, r request.Request) error {
	c := m.component(r.Component.Name)
	if c == nil {
		return failure(primitive.BackupState, m.unknown(r.Component.Name), false)
	}
	if err := c.lock(ctx); err != nil {
		return err
	}
	defer m.lookSoon() // once it is unlocked
	defer c.unlock()
	end, err := c.noStage(ctx)
	if err != nil {
		return err
	}
	defer end()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer c.enforceAfter(ctx)
	c.begin(r.ID, cancel)
	defer c.end()
	return c.upgrade(ctx, r)
}

func (c *component) begin(id string, cancel context.CancelCauseFunc) {
	c.mu.Lock()
	c.running, c.cancel = id, cancel
	c.mu.Unlock()
	c.stopIfUndone(id)
}

func (c *component) end() {
	c.mu.Lock()
	c.running, c.cancel = "", nil
	c.observeAs()
	c.mu.Unlock()
	c.m.Changed(false)
}

func (c *component) stop(why error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancel == nil {
		return false
	}
	c.cancel(why)
	return true
}

// Cancel stops an upgrade by its id in the queue. It reports whether it still could: a
// version that is being observed is undone as well.
func (m *Manager) Cancel(id, why string) bool {
	for _, c := range m.all() {
		c.mu.Lock()
		found := c.running == id
		c.mu.Unlock()
		if found {
			return c.stop(steps.Cancelled(why))
		}
	}
	return false
}

func (c *component) upgrade(ctx context.Context, r request.Request) error {
	c.mu.Lock()
	policy, problem, s := c.policy, c.problem, c.state
	c.mu.Unlock()
	if err := c.finishCompleted(ctx); err != nil {
		return failure(primitive.BackupState, err, true)
	}
	if done := s.doneBy(r.Component.UpgradeID); done != nil {
		if done.Error != "" {
			return failure(observeHealth, errors.New(done.Error), false)
		}
		return nil
	}
	refused := func(err error) error { return failure(primitive.BackupState, err, false) }
	to := desired(r, policy)
	to.WithheldAtBoot = policy.Lockstep
	health := merged(policy.Health, r.Component.Health)
	wrong := checkHealth(health)
	switch {
	case problem != "":
		return refused(errors.New(problem))
	case wrong != nil:
		return refused(fmt.Errorf("the upgrade of %s is refused: with the policy, %w", c.name, wrong))
	case to.Runtime != policy.Runtime:
		return refused(fmt.Errorf("component %s runs with %s by its policy, and the upgrade says %s", c.name, policy.Runtime, to.Runtime))
	case s.Installed != nil && s.Runtime != "" && s.Runtime != to.Runtime:
		return refused(fmt.Errorf("component %s is installed with the runtime %s, and its policy now says %s: a component keeps its runtime, so give the new one another name", c.name, s.Runtime, to.Runtime))
	}
	if err := c.makeFolder(); err != nil {
		return failure(primitive.BackupState, err, true)
	}
	j, err := c.journal(ctx, r)
	if err != nil {
		return err
	}
	if j == nil {
		if pinned := policy.Artifact.Image; pinned != "" && !to.Rollback { // an earlier version had another
			if to.Image != "" && to.Image != pinned {
				return refused(fmt.Errorf("component %s is the image %s by its policy, and the upgrade says %s", c.name, pinned, to.Image))
			}
			to.Image = pinned
		}
		j = &primitive.Journal{Desired: to, From: s.Installed, Runs: c.runs(ctx)}
		if r.Component.Lockstep != nil {
			j.Lockstep = &agentapi.LockstepReport{Until: r.Component.Lockstep.Until}
		}
	}
	w := c.newWork(j, r, health)
	if j.Undoing {
		return w.undone(ctx, failure(j.FailedStep, errors.New(j.FailedError), j.KeepDownload))
	}
	if r.Stop != "" && w.undoneBy() != byNobody {
		return w.fail(ctx, "", steps.Cancelled(r.Stop))
	}
	if r.Interrupted >= request.MaxInterrupted && w.undoneBy() != byServer {
		return w.fail(ctx, "", request.ErrInterrupted)
	}
	defer w.endStop()
	if j.Lockstep != nil {
		w.beginStop() // an agent of another version may not know what to wait for
	}
	step, err := w.do(ctx)
	if err == nil {
		return w.stays(ctx, "")
	}
	err = w.fail(ctx, step, err)
	if f := (*request.Failure)(nil); errors.As(err, &f) {
		f.Lockstep = j.Lockstep
	}
	return err
}

// makeFolder makes the component's folder durable, since its journal is only as durable.
func (c *component) makeFolder() error {
	d := c.m.Disk
	if err := d.MkdirAll(op, c.dir, 0o755); err != nil {
		return err
	}
	folder := filepath.Dir(c.dir)
	return errors.Join(d.SyncDir(op, folder), d.SyncDir(op, filepath.Dir(folder)))
}

// merged returns the rules of a policy with those of an action in their place.
func merged(policy, action agentapi.ComponentHealth) agentapi.ComponentHealth {
	if action.WaitSeconds > 0 {
		policy.WaitSeconds = action.WaitSeconds
	}
	if action.MaxRestarts != nil {
		policy.MaxRestarts = action.MaxRestarts
	}
	policy.Checks = slices.Concat(policy.Checks, action.Checks)
	return policy
}

// journal returns the journal of this upgrade, if it was interrupted. Another one's is undone
// first; if that fails the component is broken.
func (c *component) journal(ctx context.Context, r request.Request) (*primitive.Journal, error) {
	j, err := steps.Read[primitive.Journal](journalOf(c.m.Disk, c.dir))
	if errors.Is(err, disk.ErrDamaged) {
		c.m.Log.Warn("the journal of a component's upgrade was unreadable", "component", c.name, "error", err)
		return nil, nil
	}
	if err != nil {
		return nil, failure(primitive.BackupState, err, true)
	}
	if j == nil || j.Desired.ID == r.Component.UpgradeID {
		return j, nil
	}
	w := c.newWork(j, request.Request{}, agentapi.ComponentHealth{})
	if !j.Undoing && w.undoneBy() != byHost {
		goesOn, err := w.ofOther(r)
		switch {
		case err != nil:
			return nil, failure(primitive.BackupState, err, false)
		case goesOn:
			return j, nil
		}
	}
	if r.Force {
		j.Extras.AcceptState()
	}
	w.keepStopped()
	if err := w.undo(ctx, w.run.Undo); errors.Is(err, steps.ErrStopping) {
		return nil, err
	} else if err != nil {
		return nil, w.broken(fmt.Errorf("the upgrade %s to %s was interrupted", j.Desired.ID, j.Desired.Version), err)
	}
	c.note(func(s *state) { s.Broken = "" })
	return nil, nil
}

// change changes the state on disk, and then in memory.
func (c *component) change(edit func(*state)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := c.state.clone()
	edit(&next)
	if err := next.save(c.m.Disk, c.dir); err != nil {
		return fmt.Errorf("store the state of component %s: %w", c.name, err)
	}
	c.state = next
	return nil
}

// note is change for what is not needed to go on.
func (c *component) note(edit func(*state)) {
	if err := c.change(edit); err != nil {
		c.m.Log.Error("the state of a component was not stored", "component", c.name, "error", err)
	}
}

// work is an upgrade under way.
type work struct {
	c      *component
	r      request.Request
	j      *primitive.Journal
	run    *steps.Run
	change *primitive.Change
	health agentapi.ComponentHealth
	phase  string
	state  agentapi.UpgradeState // of the step under way
	// stopping means that the component is stopped; see Manager.PauseStops.
	stopping bool
	// heard means that printed has the last output before the component was stopped.
	heard   bool
	printed []string
}

func (c *component) newWork(j *primitive.Journal, r request.Request, health agentapi.ComponentHealth) *work {
	w := &work{c: c, r: r, j: j, health: health}
	m := c.m
	w.change = c.newChange(j, w.allow, func() error { return w.run.Save() }, func(meta agentapi.UpgradeMetadata) {
		w.report(w.state, meta, true)
	})
	w.change.Await = w.await
	w.run = &steps.Run{
		Steps: append(w.change.Steps(), steps.Step{
			Name: observeHealth, Timeout: newRules(nil, health).Wait + agentapi.ComponentWaitSlack, Do: w.observe,
		}),
		Journal: j, File: journalOf(m.Disk, c.dir), Begins: w.begins, Log: m.Log.With("component", c.name),
	}
	return w
}

// newChange returns what the actions of an upgrade or a stage work with.
func (c *component) newChange(j *primitive.Journal, allow func(string, *trust.Expectation) error, save func() error, report func(agentapi.UpgradeMetadata)) *primitive.Change {
	m := c.m
	c.mu.Lock()
	list := slices.Concat(c.state.Kept(), c.state.Staged())
	if i := c.state.Installed; i != nil {
		list = slices.Insert(list, 0, besides(*i)) // only its configuration changes then
	}
	c.mu.Unlock()
	return &primitive.Change{
		Disk: m.Disk, Adapter: m.Adapters[j.Desired.Runtime], Packages: m.Packages, Top: m.Top, Links: m.Links, Dir: c.dir, GOOS: m.GOOS, GOARCH: m.GOARCH,
		OnHost: list, Allow: allow, Journal: j, Save: save, Execute: m.Execute, Account: m.Account, Log: m.Log, Report: report,
	}
}

func (w *work) allow(version string, e *trust.Expectation) error { return w.c.allow(w.r, version, e) }

func (c *component) allow(r request.Request, version string, e *trust.Expectation) error {
	r.Version, r.Component.Name = version, c.name
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.allow(r, e)
}

// upgradeStates are the states on the wire during the steps.
var upgradeStates = map[string]agentapi.UpgradeState{
	primitive.BackupState: agentapi.UpgradeRequested, primitive.AcquireArtifact: agentapi.UpgradeDownloading,
	primitive.VerifyArtifact: agentapi.UpgradeExtracting, primitive.DrainNode: agentapi.UpgradeReplacing,
	primitive.StopNode: agentapi.UpgradeReplacing, primitive.BackupData: agentapi.UpgradeReplacing,
	primitive.MigrateDown: agentapi.UpgradeReplacing, primitive.InstallArtifact: agentapi.UpgradeReplacing,
	primitive.WriteConfigs: agentapi.UpgradeReplacing, primitive.ReloadDaemon: agentapi.UpgradeReplacing,
	// Its migrations are the first that runs of the new version: what fails from here on is its fault.
	primitive.MigrateUp: agentapi.UpgradeRestarting, primitive.StartNode: agentapi.UpgradeRestarting,
	primitive.UndrainNode: agentapi.UpgradeRestarting,
	observeHealth:         agentapi.UpgradeWatching,

	primitive.VerifyAgain:                    agentapi.UpgradeReplacing,
	primitive.Await(agentapi.LockstepStop):   agentapi.UpgradeReplacing,
	primitive.Await(agentapi.LockstepBackup): agentapi.UpgradeReplacing,
	primitive.Await(agentapi.LockstepSwitch): agentapi.UpgradeReplacing,
	primitive.Await(agentapi.LockstepStart):  agentapi.UpgradeReplacing,
}

func (w *work) begins(s steps.Step) {
	switch s.Name {
	case primitive.StopNode:
		w.hear()
		w.beginStop()
	case observeHealth:
		w.endStop()
	}
	w.phase = agentapi.PhaseVerifying
	if s.Name != observeHealth {
		w.phase = primitive.Phase(s.Name)
	}
	w.state = upgradeStates[s.Name]
	w.report(w.state, agentapi.UpgradeMetadata{}, false)
}

// beginStop begins the time in which the component is stopped, unless it has begun.
func (w *work) beginStop() {
	if !w.stopping {
		w.c.m.stops.RLock()
		w.stopping = true
	}
}

// endStop ends the time in which the component is stopped.
func (w *work) endStop() {
	if w.stopping {
		w.stopping = false
		w.c.m.stops.RUnlock()
	}
}

func (w *work) report(state agentapi.UpgradeState, meta agentapi.UpgradeMetadata, progress bool) {
	meta.Phase = w.phase
	if l := w.j.Lockstep; l != nil {
		meta.Lockstep = new(*l)
	}
	d := agentapi.UpgradeDetails{TargetVersion: w.j.Desired.Version, ActionID: w.r.ActionID, State: state, Metadata: meta}
	w.c.mu.Lock()
	w.c.details = &d
	w.c.mu.Unlock()
	if !progress {
		log := w.c.m.Log.With("component", w.c.name, "state", state, "version", d.TargetVersion)
		if w.phase != "" {
			log = log.With("phase", w.phase)
		}
		if meta.ErrorMsg != "" {
			log = log.With("error", meta.ErrorMsg)
		}
		log.Info("component upgrade")
	}
	w.c.m.Changed(progress)
}

// observe looks at the new version until it is good or bad.
func (w *work) observe(ctx context.Context) error {
	c := w.c
	adapter, to, err := w.to()
	if err != nil {
		return err
	}
	p, err := c.m.packageOf(c.dir, w.j.To.Home)
	if err != nil {
		return err
	}
	rules := newRules(p.Checks, w.health)
	o := observation{began: time.Now()}
	again := false // it was started again since it was last seen to run
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		s := c.m.sample(ctx, adapter, to, &rules)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		switch {
		case s.status.Running:
			again = false
		case o.last.unknown && !s.unknown && !again:
			// It ended with its runtime, which does not start again what it takes for stopped.
			err := adapter.Start(ctx, to)
			if again = err == nil; again {
				err = errStartedAgain
			}
			c.m.Log.Info("a component ended while its runtime did not answer, and is started again", "component", c.name, "result", err)
			s = silent(err)
		}
		o.add(s, &rules)
		switch v, why := o.judge(&rules, time.Now()); v {
		case good:
			return nil
		case bad:
			var reason error = why
			if s.unknown {
				reason = errSilent{why, s.err}
			}
			return w.withOutput(fmt.Errorf("version %s is not healthy: %w", w.j.Desired.Version, reason), &w.j.To)
		}
		w.report(agentapi.UpgradeWatching, agentapi.UpgradeMetadata{Reason: o.pending(&rules, time.Now())}, true)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// errStartedAgain is why nothing is known of a component for a moment.
var errStartedAgain = errors.New("it was started again, since its runtime was away")

func (w *work) to() (runtime.Adapter, *runtime.Release, error) {
	r, err := primitive.Release(w.c.m.Disk, w.c.dir, w.c.name, w.j.To)
	return w.change.Adapter, r, err
}

// fail undoes an upgrade whose step has failed.
func (w *work) fail(ctx context.Context, step string, why error) error {
	if errors.Is(why, steps.ErrStopping) || errors.Is(context.Cause(ctx), steps.ErrStopping) {
		return steps.ErrStopping // the journal stays, and the next process continues
	}
	switch by := w.undoneBy(); {
	case by == byNobody:
		return w.leave(ctx, step, why)
	case by == byServer && !errors.Is(why, steps.ErrCancelled): // it is no longer in the policy
		return failure(step, why, false)
	}
	if step == primitive.StartNode && !errors.Is(why, steps.ErrCancelled) {
		why = w.withOutput(why, &w.j.To)
	}
	// The others do not wait for another try of this one.
	f := failure(step, why, w.j.Lockstep == nil && transient(step, why))
	w.j.KeepDownload = f.Transient
	w.phase = ""
	w.report(agentapi.UpgradeRollback, agentapi.UpgradeMetadata{FailedState: upgradeStates[step], ErrorMsg: why.Error()}, false)
	w.keepStopped()
	err := w.undo(ctx, func() error { return w.run.Fail(step, why) })
	switch {
	case errors.Is(err, steps.ErrStopping):
		return err
	case err != nil:
		return w.broken(why, err)
	}
	return w.failed(ctx, f)
}

const (
	// undoAgainFor is how long an undo is tried again that may succeed later: an engine that is
	// upgraded or was killed is back within a minute or two.
	undoAgainFor = 3 * time.Minute
	undoPause    = 3 * time.Second
)

// undo undoes the upgrade by first, and tries again for undoAgainFor while that may succeed. It
// returns steps.ErrStopping if a later process has to continue.
func (w *work) undo(ctx context.Context, first func() error) error {
	err := first()
	for until := time.Now().Add(undoAgainFor); err != nil && transient("", err) && time.Now().Before(until); {
		w.c.m.Log.Warn("a component's upgrade cannot be undone yet, and is tried again", "component", w.c.name, "error", err)
		select {
		case <-time.After(undoPause):
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), steps.ErrStopping) {
				return steps.ErrStopping
			}
			time.Sleep(undoPause) // an operator has cancelled the upgrade, which is why it is undone
		}
		err = w.run.Undo()
	}
	return err
}

// undone completes an undoing that was interrupted.
func (w *work) undone(ctx context.Context, f *request.Failure) error {
	w.keepStopped()
	err := w.undo(ctx, w.run.Undo)
	switch {
	case errors.Is(err, steps.ErrStopping):
		return err
	case err != nil:
		return w.broken(f.Err, err)
	}
	return w.failed(ctx, f)
}

// failed records an upgrade that is undone, and looks whether the version before runs again.
func (w *work) failed(ctx context.Context, f *request.Failure) error {
	started := f.State == agentapi.UpgradeRestarting || w.j.HasBegun(observeHealth)
	// What is tried again is not the version's fault, and must not be refused then.
	bad := started && !f.Transient && !errors.Is(f.Err, steps.ErrCancelled)
	w.c.note(func(s *state) {
		s.Broken = ""
		s.fail(w.j, f.Error(), bad, time.Now().UTC())
	})
	if w.j.Runs && w.j.HasBegun(primitive.StopNode) {
		if err := w.runsAgain(context.WithoutCancel(ctx)); err != nil {
			return w.broken(f.Err, err)
		}
	}
	if !f.Transient { // otherwise the download is continued
		w.c.clean(ctx)
	}
	return f
}

// runsAgain observes the version before, which may end at once: the new one may have left
// state that it cannot read.
func (w *work) runsAgain(ctx context.Context) error {
	c := w.c
	from, err := primitive.Release(c.m.Disk, c.dir, c.name, *w.j.From)
	if err != nil {
		return err
	}
	rules := newRules(nil, w.health)
	rules.Wait = runsAgainWait
	o := observation{began: time.Now()}
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		s := c.m.sample(ctx, w.change.Adapter, from, &rules)
		s.status.Ready = s.status.Running // what it takes to be ready may take longer
		o.add(s, &rules)
		switch v, why := o.judge(&rules, time.Now()); {
		case v == good:
			return nil
		case v == bad && w.j.Desired.Migration == breakingMigration:
			return fmt.Errorf("version %s is back, and %w; the migration to %s is breaking, so it may not read the state: follow the recovery plan", w.j.From.FullVersion(), why, w.j.Desired.Version)
		case v == bad:
			return fmt.Errorf("version %s is back, and %w", w.j.From.FullVersion(), why)
		}
		<-tick.C
	}
}

// runs reports whether the installed version runs, as far as its runtime says.
func (c *component) runs(ctx context.Context) bool {
	adapter, r, err := c.current()
	return err == nil && r != nil && c.m.sample(ctx, adapter, r, &Rules{}).status.Running
}

// broken records that an upgrade could not be undone.
func (w *work) broken(why, undo error) error {
	text := failedRollback(why, w.withOutput(undo, w.j.From))
	w.c.note(func(s *state) {
		s.Broken = text
		s.fail(w.j, text, false, time.Now().UTC())
	})
	w.c.m.Log.Error("a component's upgrade failed and could not be undone; nothing more is done with it until an operator acts", "component", w.c.name, "error", text)
	// The journal stays: the next try of this order, or the next order, undoes it first.
	f := failure(w.j.FailedStep, errors.New(text), w.j.Lockstep == nil && transient("", undo))
	f.Broken = true
	return f
}

// stays records that the version stays, healthy or for this problem not, before what only
// undoing needs is removed.
func (w *work) stays(ctx context.Context, problem string) error {
	c := w.c
	var bytes int64
	if w.j.From != nil {
		bytes = c.size(w.j.From.Home)
	}
	if err := c.change(func(s *state) { s.install(w.j, problem, bytes, c.m.Keep, time.Now().UTC()) }); err != nil {
		return failure(observeHealth, err, true)
	}
	if problem == "" {
		c.mu.Lock()
		c.details = nil
		c.mu.Unlock()
	}
	if err := w.finish(ctx); err != nil {
		c.m.Log.Warn("what only undoing needed is not removed yet", "component", c.name, "error", err)
	}
	c.clean(ctx)
	return nil
}

// finish removes what only undoing needs, the journal last.
func (w *work) finish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, tidyTimeout)
	defer cancel()
	adapter, to, err := w.to()
	if err != nil {
		return err
	}
	var from *runtime.Release
	if w.j.From != nil {
		if from, err = primitive.Release(w.c.m.Disk, w.c.dir, w.c.name, *w.j.From); err != nil {
			return err
		}
	}
	if err := adapter.Keep(ctx, to, from); err != nil {
		return err
	}
	return journalOf(w.c.m.Disk, w.c.dir).Remove()
}

// finishCompleted removes the journal of an upgrade that is done, so that nothing undoes it.
func (c *component) finishCompleted(ctx context.Context) error {
	j, err := steps.Read[primitive.Journal](journalOf(c.m.Disk, c.dir))
	if err != nil || j == nil {
		return nil //nolint:nilerr // journal says so
	}
	c.mu.Lock()
	done := c.state.isCompleted(j.Desired.ID)
	c.mu.Unlock()
	if !done {
		return nil
	}
	return c.newWork(j, request.Request{}, agentapi.ComponentHealth{}).finish(ctx)
}

// Conclude records and reports a failure that is not tried again.
func (m *Manager) Conclude(r request.Request, f *request.Failure) {
	c := m.component(r.Component.Name)
	if c == nil {
		return
	}
	d := f.Details(r)
	c.note(func(s *state) { s.Report = &d })
	c.mu.Lock()
	c.details = &d
	c.mu.Unlock()
	m.Changed(false)
}

// Scheduled reports an upgrade that waits for its time, or for another try.
func (m *Manager) Scheduled(r request.Request, meta agentapi.UpgradeMetadata) {
	m.waits(r, agentapi.UpgradeScheduled, meta)
}

// Requested reports an upgrade that is due, and what it waits for.
func (m *Manager) Requested(r request.Request, why string) {
	m.waits(r, agentapi.UpgradeRequested, agentapi.UpgradeMetadata{Reason: why})
}

// CalledOff stops reporting upgrades that waited and have left the queue. It does not touch the
// components in except, whose upgrades are still in the queue.
func (m *Manager) CalledOff(except []string) {
	for _, c := range m.all() {
		c.mu.Lock()
		d := c.details
		gone := c.running == "" && d != nil && (d.State == agentapi.UpgradeScheduled || d.State == agentapi.UpgradeRequested) && !slices.Contains(except, c.name)
		if gone {
			c.details = c.state.Report
		}
		c.mu.Unlock()
		if gone {
			m.Changed(false)
		}
	}
}

func (m *Manager) waits(r request.Request, state agentapi.UpgradeState, meta agentapi.UpgradeMetadata) {
	c := m.component(r.Component.Name)
	if c == nil {
		return
	}
	d := agentapi.UpgradeDetails{TargetVersion: r.Version, ActionID: r.ActionID, State: state, Metadata: meta}
	c.mu.Lock()
	same := c.details != nil && c.details.State == d.State && c.details.ActionID == d.ActionID && c.details.Metadata.Reason == meta.Reason &&
		(meta.ScheduledAt == nil || c.details.Metadata.ScheduledAt.Equal(*meta.ScheduledAt))
	if !same {
		c.details = &d
	}
	c.mu.Unlock()
	if !same {
		m.Changed(false)
	}
}

// transient reports whether a retry may succeed, of a step or of undoing. These two steps take longer on a loaded
// host or a slow network; the others have the time that a component may be stopped for.
func transient(step string, err error) bool {
	return request.Transient(err, errors.Is(err, steps.ErrTimeout) && (step == primitive.AcquireArtifact || step == primitive.BackupState))
}
