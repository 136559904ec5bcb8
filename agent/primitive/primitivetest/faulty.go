package primitivetest

import (
	"context"

	"github.com/muster-fleet/muster/agent/runtime"
)

// faulty interrupts one call of an adapter. Once the agent is killed no call acts.
type faulty struct {
	runtime.Adapter
	name string
	how  how
	hung func()

	undoing, dead bool
	did           []string // the calls that change something
}

func (f *faulty) call(ctx context.Context, name string, act func() error) error {
	if f.dead {
		return errKilled
	}
	f.did = append(f.did, name)
	if f.undoing || name != f.name {
		return act()
	}
	switch f.how {
	case failsBefore:
		return errFails
	case failsAfter:
		if err := act(); err != nil {
			return err
		}
		return errFails
	case hangs:
		f.hung() // as the timeout of the step does
		<-ctx.Done()
		return context.Cause(ctx)
	case killedBefore:
		f.dead = true
		return errKilled
	case killedAfter, powerCut:
		err := act()
		f.dead = true
		if err != nil {
			return err
		}
		return errKilled
	}
	panic("unknown interruption " + string(f.how))
}

func (f *faulty) Acquire(ctx context.Context, r *runtime.Release, report func(float64)) error {
	return f.call(ctx, "Acquire", func() error { return f.Adapter.Acquire(ctx, r, report) })
}

func (f *faulty) Discard(ctx context.Context, r *runtime.Release) error {
	return f.call(ctx, "Discard", func() error { return f.Adapter.Discard(ctx, r) })
}

func (f *faulty) Verify(ctx context.Context, r *runtime.Release) error {
	return f.call(ctx, "Verify", func() error { return f.Adapter.Verify(ctx, r) })
}

func (f *faulty) Backup(ctx context.Context, r *runtime.Release, dir string) error {
	return f.call(ctx, "Backup", func() error { return f.Adapter.Backup(ctx, r, dir) })
}

func (f *faulty) Stop(ctx context.Context, r *runtime.Release) error {
	return f.call(ctx, "Stop", func() error { return f.Adapter.Stop(ctx, r) })
}

func (f *faulty) Start(ctx context.Context, r *runtime.Release) error {
	return f.call(ctx, "Start", func() error { return f.Adapter.Start(ctx, r) })
}

func (f *faulty) Install(ctx context.Context, to, from *runtime.Release) error {
	return f.call(ctx, "Install", func() error { return f.Adapter.Install(ctx, to, from) })
}

func (f *faulty) Restore(ctx context.Context, to, from *runtime.Release, dir string) error {
	return f.call(ctx, "Restore", func() error { return f.Adapter.Restore(ctx, to, from, dir) })
}

func (f *faulty) ReloadDaemon(ctx context.Context, r *runtime.Release) error {
	return f.call(ctx, "ReloadDaemon", func() error { return f.Adapter.ReloadDaemon(ctx, r) })
}
