package selfupgrade

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/audit"
	"github.com/muster-fleet/muster/server/store/lease"
)

const (
	// LeaseID is the lease of the server that moves an upgrade on.
	LeaseID = "server-upgrade"

	// idlePause is how soon a server learns of an upgrade. It costs one read.
	idlePause = 2 * time.Second
	// busyPause is the pause between two rounds of an upgrade: each phase adds about one to
	// the time without servers.
	busyPause = 200 * time.Millisecond
	// retryPause is the pause after a failed read or write.
	retryPause = time.Second
	// roundTime bounds a round without work: it runs a program that prints its version, and
	// reads and writes a few documents.
	roundTime = 30 * time.Second
	// workTime bounds the backup, which copies all documents, and the change of the schema.
	workTime = 30 * time.Minute
)

// Machine is what an upgrade does on a server's machine.
type Machine interface {
	// Check returns why this server cannot be replaced by a version, as a sentence about its
	// machine. It changes nothing.
	Check(ctx context.Context, to string) error
	// Backup backs up the store and returns where to. All servers have stopped.
	Backup(ctx context.Context, u fleet.ServerUpgrade) (string, error)
	// Migrate brings the schema of the store to that of a version. All servers have stopped.
	// It may close the store: the process is replaced afterwards, also if it fails.
	Migrate(ctx context.Context, u fleet.ServerUpgrade) error
	// Switch makes a version the one that this machine runs.
	Switch(ctx context.Context, to string) error
	// Prune removes the backups that Surplus names, and returns their files. The backups of the
	// runs in use stay.
	Prune(ctx context.Context, inUse ...string) ([]string, error)
}

// ErrStopped is what a server ends with that has stopped to be upgraded. It has to be started
// again, and is then held until it may serve.
var ErrStopped = errors.New("the server has stopped to be upgraded with the others")

// NoMachine is the machine of a server that was not installed, and cannot be replaced.
type NoMachine struct{}

// Check says what to do.
func (NoMachine) Check(context.Context, string) error {
	return errors.New("it does not run from an installation: install its version with `muster server install`, and start it by the path that this prints")
}

// Backup is not called, since Check fails; nor are the others.
func (n NoMachine) Backup(ctx context.Context, u fleet.ServerUpgrade) (string, error) {
	return "", n.Check(ctx, u.To)
}

// Migrate is not called.
func (n NoMachine) Migrate(ctx context.Context, u fleet.ServerUpgrade) error {
	return n.Check(ctx, u.To)
}

// Switch is not called.
func (n NoMachine) Switch(ctx context.Context, to string) error { return n.Check(ctx, to) }

// Prune does nothing: no upgrade has made a backup.
func (NoMachine) Prune(context.Context, ...string) ([]string, error) { return nil, nil }

// Config is what a Follower works with. All fields but Parked, Away and Now are required.
type Config struct {
	Upgrades store.Collection[fleet.ServerUpgrade]
	Servers  store.Collection[fleet.Server]
	Leases   store.Collection[fleet.Lease]
	Audit    store.Audit
	Records  Records
	Machine  Machine
	// Self has the server's id, its host and its version; Serving says whether it serves.
	Self Me
	// Parked returns the number of agents that are parked here; nil if the server does not
	// serve.
	Parked func() int
	// Away returns an error while the store is known not to answer; nil if that is not known.
	Away func() error
	Log  *slog.Logger
	Now  clock.Clock
}

// Follower lets one server follow the upgrades of all. A serving server calls Run, one that
// does not serve yet calls Hold.
type Follower struct {
	Config
	lease *lease.Owner

	refuses  atomic.Pointer[string]
	stopping chan struct{}
	once     sync.Once
	// The last phase and the last error that were logged.
	logged, warned string
}

// New returns the follower of a server.
func New(c Config) *Follower {
	return &Follower{
		Config: c, stopping: make(chan struct{}),
		// By the server and not by the process: whatever the owner does is repeatable, and a
		// server that replaces itself continues at once, instead of after its own lease.
		lease: &lease.Owner{Leases: c.Leases, Name: c.Self.ID, TTL: lease.DefaultTTL, Renew: lease.DefaultRenew, Now: c.Now},
	}
}

// Refuses returns an error of kind Unavailable while the server takes no orders.
func (f *Follower) Refuses() error {
	if text := f.refuses.Load(); text != nil && *text != "" {
		return fleet.Errorf(fleet.Unavailable, "%s", *text)
	}
	return nil
}

// Stopping is closed when the server has to stop serving for an upgrade.
func (f *Follower) Stopping() <-chan struct{} { return f.stopping }

// Run follows upgrades while the server serves, until ctx ends or the server has to stop.
func (f *Follower) Run(ctx context.Context) {
	defer f.release(ctx)
	for {
		step, pause := f.try(ctx)
		if step == Stop {
			f.once.Do(func() { close(f.stopping) })
			return
		}
		if !sleep(ctx, pause) {
			return
		}
	}
}

// Hold follows an upgrade while the server does not serve. It returns Serve when the server
// may, and Replace if its process has to be replaced by the program to which the machine's
// pointer leads.
func (f *Follower) Hold(ctx context.Context) (Step, error) {
	defer f.release(ctx)
	record, err := f.Records.Read()
	if err != nil {
		return Wait, err
	}
	for first := true; ; first = false {
		step, err := f.round(ctx)
		switch {
		case err != nil && first && record.Run == "" || ctx.Err() != nil:
			return Wait, cmp.Or(err, ctx.Err())
		case step == Serve || step == Replace:
			return step, nil
		}
		if !sleep(ctx, f.pause(step, err)) {
			return Wait, ctx.Err()
		}
	}
}

// release lets another server continue at once, instead of after the lease has expired.
func (f *Follower) release(ctx context.Context) {
	if err := f.lease.ReleaseAll(ctx); err != nil {
		f.Log.Debug("the lease of the upgrade of the servers is not released, and expires", "error", err)
	}
}

// try does a round and returns the pause before the next one.
func (f *Follower) try(ctx context.Context) (Step, time.Duration) {
	if f.Away != nil && f.Away() != nil {
		return Wait, retryPause
	}
	step, err := f.round(ctx)
	return step, f.pause(step, err)
}

func (f *Follower) pause(step Step, err error) time.Duration {
	switch {
	case err != nil:
		// A server that serves can do without; one that is held says why it goes on being held.
		if text := err.Error(); !f.Self.Serving && text != f.warned {
			f.warned = text
			f.Log.Warn("this server does not serve: it is to follow the upgrade of the servers, and tries again", "error", err)
		}
		return retryPause
	case step == Wait && f.logged == "":
		return idlePause
	}
	return busyPause
}

// round does at most one step of this server's own and, if it owns the lease, one of the
// upgrade.
func (f *Follower) round(ctx context.Context) (Step, error) {
	bounded, cancel := context.WithTimeout(ctx, roundTime)
	defer cancel()
	u, err := Current(bounded, f.Upgrades)
	if err != nil {
		return Wait, err
	}
	f.refuses.Store(new(Refuses(u)))
	f.logPhase(u)
	me := f.Self
	if me.Record, err = f.Records.Read(); err != nil {
		return Wait, err
	}
	step := Own(u, me)
	if step != Wait && step != Verify {
		return f.own(bounded, u, me, step)
	}
	if step == Verify {
		if _, err := f.own(bounded, u, me, step); err != nil {
			return Wait, err
		}
	}
	if u == nil || u.Phase.Ended() {
		return Wait, nil
	}
	return f.lead(ctx, u, me)
}

// logPhase logs each phase once.
func (f *Follower) logPhase(u *fleet.ServerUpgrade) {
	phase := ""
	if u != nil && !u.Phase.Ended() {
		phase = string(u.Phase)
	}
	if phase != f.logged && phase != "" {
		f.Log.Info("upgrade of the servers", "phase", phase, "from", u.From, "to", u.To, "problem", u.Problem)
	}
	f.logged = phase
}

// own carries out a step of this server's own. It returns the step if the caller has to act.
func (f *Follower) own(ctx context.Context, u *fleet.ServerUpgrade, me Me, step Step) (Step, error) {
	reached := func(p fleet.ServerPhase) (Step, error) {
		return Wait, f.report(ctx, u, func(s *fleet.UpgradingServer) { s.Reached, s.Problem = p, "" })
	}
	switch step {
	case Check, Recheck:
		phase := fleet.ServerCheck
		if step == Recheck {
			phase = fleet.ServerRecheck
		}
		err := f.Machine.Check(ctx, u.To)
		switch {
		case err == nil:
			return reached(phase)
		case ctx.Err() != nil:
			return Wait, err
		}
		return Wait, f.report(ctx, u, func(s *fleet.UpgradingServer) { s.Problem = err.Error() })
	case Hold:
		parked := f.Parked()
		return Wait, f.report(ctx, u, func(s *fleet.UpgradingServer) {
			s.Reached, s.Problem, s.Before = fleet.ServerHold, "", parked
		})
	case Stop:
		return f.stop(ctx, u, me)
	case Stopped:
		if err := f.record(u, me, fleet.ServerStop); err != nil { // a server that was started meanwhile has none
			return Wait, err
		}
		return reached(fleet.ServerStop)
	case Failed:
		return Wait, f.report(ctx, u, func(s *fleet.UpgradingServer) { s.Problem = me.Record.Failed })
	case Replace:
		return f.replace(ctx, u, me)
	case Runs:
		return reached(fleet.ServerSwitch)
	case Serves:
		return Wait, f.report(ctx, u, func(s *fleet.UpgradingServer) {
			s.Reached, s.Problem, s.ServedAt = fleet.ServerStart, "", new(f.Now.UTC())
		})
	case Verify:
		parked, s := f.Parked(), u.Server(me.ID)
		if s.Reached == fleet.ServerVerify && s.After == parked {
			return Wait, nil
		}
		return Wait, f.report(ctx, u, func(s *fleet.UpgradingServer) {
			s.Reached, s.Problem, s.After = fleet.ServerVerify, "", parked
		})
	case Undo:
		if err := f.Records.Remove(); err != nil {
			return Wait, err
		}
		return Wait, f.report(ctx, u, func(s *fleet.UpgradingServer) {
			s.Reached, s.Problem = fleet.ServerUndo, ""
			if s.StoppedAt != nil {
				s.ServedAt = new(f.Now.UTC())
			}
		})
	case Forget:
		return Wait, f.Records.Remove()
	}
	return step, nil
}

// stop records the upgrade before the server stops, so that it is held when it starts.
func (f *Follower) stop(ctx context.Context, u *fleet.ServerUpgrade, me Me) (Step, error) {
	if err := f.record(u, me, fleet.ServerStop); err != nil {
		return Wait, err
	}
	return Stop, f.report(ctx, u, func(s *fleet.UpgradingServer) {
		if s.StoppedAt == nil {
			s.StoppedAt = new(f.Now.UTC())
		}
	})
}

// record writes the record of an upgrade, unless there is one that knows as much.
func (f *Follower) record(u *fleet.ServerUpgrade, me Me, phase fleet.ServerPhase) error {
	if me.Record.Run == u.Run && me.Record.Phase.AtLeast(phase) {
		return nil
	}
	return f.Records.Write(Record{Run: u.Run, From: u.From, To: u.To, Phase: phase})
}

// replace moves the pointer. The record comes first: from then on the old program does not
// serve on this machine.
func (f *Follower) replace(ctx context.Context, u *fleet.ServerUpgrade, me Me) (Step, error) {
	if err := f.record(u, me, fleet.ServerSwitch); err != nil {
		return Wait, err
	}
	if err := f.Machine.Switch(ctx, u.To); err != nil {
		if s := u.Server(me.ID); s != nil && s.Problem == err.Error() {
			return Wait, err // reported already
		}
		return Wait, f.report(ctx, u, func(s *fleet.UpgradingServer) { s.Problem = err.Error() })
	}
	return Replace, nil
}

// report changes this server's part of the upgrade. It does nothing if another upgrade has
// begun.
func (f *Follower) report(ctx context.Context, u *fleet.ServerUpgrade, change func(*fleet.UpgradingServer)) error {
	_, _, err := store.Change(ctx, f.Upgrades, u.ID, func(now fleet.ServerUpgrade) (fleet.ServerUpgrade, error) {
		if now.Run != u.Run {
			return now, nil
		}
		if now.Server(f.Self.ID) == nil {
			now.Servers = append(now.Servers, fleet.UpgradingServer{ID: f.Self.ID})
		}
		s := now.Server(f.Self.ID)
		s.Host, s.Version = f.Self.Host, f.Self.Version
		change(s)
		return now, nil
	})
	if err != nil && fleet.KindOf(err) == fleet.NotFound {
		return nil
	}
	return err
}

// lead moves the upgrade on if this server owns its lease.
func (f *Follower) lead(ctx context.Context, u *fleet.ServerUpgrade, me Me) (Step, error) {
	bounded, cancel := context.WithTimeout(ctx, roundTime)
	defer cancel()
	if owned, err := f.lease.Take(bounded, LeaseID); err != nil || !owned {
		return Wait, err
	}
	now := f.Now.UTC()
	others, err := running(bounded, f.Servers, now)
	if err != nil {
		return Wait, err
	}
	m := Next(u, me, others, now)
	switch {
	case m.Work != "":
		return f.work(ctx, u, m.Work)
	case m.Phase == "":
		return Wait, nil
	}
	Apply(u, m, now)
	_, err = f.Upgrades.Update(bounded, *u)
	switch {
	case err != nil && fleet.KindOf(err) == fleet.Conflict:
		return Wait, nil // a server has reported: the next round decides anew
	case err == nil && u.Phase.Ended():
		f.ended(bounded, u)
		if u.Phase == fleet.ServerDone {
			f.prune(bounded, u, me)
		}
	}
	return Wait, err
}

// ended records how an upgrade has ended. The trail has its beginning in any case.
func (f *Follower) ended(ctx context.Context, u *fleet.ServerUpgrade) {
	text := fmt.Sprintf("upgraded the servers from %s to %s", u.From, u.To)
	if u.Phase == fleet.ServerUndone {
		text = fmt.Sprintf("did not upgrade the servers from %s to %s", u.From, u.To)
	}
	if d, ok := u.Downtime(); ok {
		text += fmt.Sprintf(", which were away for %.1f s", d.Seconds())
	}
	f.Log.Info("upgrade of the servers has ended", "phase", u.Phase, "from", u.From, "to", u.To, "problem", u.Problem)
	entry := fleet.AuditEntry{Actor: u.Actor, Verb: "server.upgrade", Subject: u.Run, Why: u.Problem, Text: text}
	if err := audit.Record(ctx, f.Audit, f.Now.UTC(), entry); err != nil {
		f.Log.Warn("the audit trail does not have the end of the upgrade of the servers", "error", err)
	}
}

// prune removes old backups after an upgrade that has succeeded. What it does not remove, the
// next upgrade does.
func (f *Follower) prune(ctx context.Context, u *fleet.ServerUpgrade, me Me) {
	removed, err := f.Machine.Prune(ctx, u.Run, me.Record.Run)
	if len(removed) > 0 {
		f.Log.Info("old backups of upgrades of the servers are removed", "files", removed, "kept", KeptBackups)
	}
	if err != nil {
		f.Log.Warn("old backups of upgrades of the servers are not removed: the next upgrade tries again", "error", err)
	}
}

// work does what only one server does. It renews the lease meanwhile, and stops when the
// upgrade is undone.
func (f *Follower) work(ctx context.Context, u *fleet.ServerUpgrade, work fleet.ServerPhase) (Step, error) {
	working, cancel := context.WithTimeout(ctx, workTime)
	var renewing sync.WaitGroup
	defer renewing.Wait()
	defer cancel()
	renewing.Go(func() {
		for sleep(working, lease.DefaultRenew) {
			if _, err := f.lease.Take(working, LeaseID); err != nil {
				f.Log.Debug("the lease of the upgrade of the servers is not renewed", "error", err)
			}
			if now, err := Current(working, f.Upgrades); err == nil && now != nil && now.Phase == fleet.ServerUndo {
				cancel()
			}
		}
	})
	if work == fleet.ServerMigrate {
		return f.migrate(working, u)
	}
	place, err := f.Machine.Backup(working, *u)
	if err != nil && ctx.Err() != nil {
		return Wait, err // this server is being stopped: another one does it
	}
	if err != nil {
		Apply(u, Move{Phase: fleet.ServerUndo, Problem: fmt.Sprintf("the store could not be backed up: %v", err)}, f.Now.UTC())
	}
	u.Backup = place
	bounded, done := context.WithTimeout(ctx, roundTime)
	defer done()
	if _, err = f.Upgrades.Update(bounded, *u); err != nil && fleet.KindOf(err) == fleet.Conflict {
		err = nil // someone else has undone it, or has backed up
	}
	return Wait, err
}

// migrate changes the schema. Afterwards the process is replaced in any case: by the other
// version, or by its own, which opens the store if the schema is as it was.
func (f *Follower) migrate(ctx context.Context, u *fleet.ServerUpgrade) (Step, error) {
	r := Record{Run: u.Run, From: u.From, To: u.To, Phase: fleet.ServerMigrate}
	if err := f.Records.Write(r); err != nil {
		return Wait, err
	}
	err := f.Machine.Migrate(ctx, *u)
	if err == nil {
		r.Phase = fleet.ServerSwitch
		if err := f.Records.Write(r); err != nil {
			return Wait, err
		}
		if err := f.Machine.Switch(ctx, u.To); err != nil {
			f.Log.Error("the server cannot run the version to which the store was brought: it tries again", "version", u.To, "error", err)
		}
		return Replace, nil
	}
	if ctx.Err() == nil {
		f.Log.Error("the schema of the store was not changed", "version", u.To, "error", err)
		r.Failed = fmt.Sprintf("the schema of the store could not be changed: %v", err)
		if err := f.Records.Write(r); err != nil {
			return Wait, err
		}
	}
	return Replace, nil
}

// sleep waits, and reports whether ctx has not ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
