package primitive

import (
	"context"
	"errors"
	"fmt"

	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/agent/statecopy"
	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// migrateDown brings the component's state back to the form of an older version, by the
// migrations of the one that is still installed.
func (c *Change) migrateDown() steps.Step { return c.migrate(MigrateDown, true) }

// migrateUp brings the component's state to the form of the new version, by its migrations.
func (c *Change) migrateUp() steps.Step { return c.migrate(MigrateUp, false) }

// migrate is the step of both. Undoing puts back the state that backup_data has copied. Without
// a copy it runs the migrations of the other direction.
func (c *Change) migrate(name string, down bool) steps.Step {
	return steps.Step{
		Name: name, Timeout: migrateTimeout, Input: c.input,
		When: func() bool { return c.Journal.Extras.Down == down && len(c.Journal.Extras.Migrations) > 0 },
		Do:   func(ctx context.Context) error { return c.doMigrate(ctx, down) },
		Undo: func(ctx context.Context) error { return c.undoMigrate(ctx, down) }, OwnTime: true,
	}
}

// newer returns the newer of both versions, whose package has the migrations.
func (c *Change) newer(down bool) (*runtime.Release, error) {
	if down {
		return c.from()
	}
	return c.to()
}

var errNoDown = errors.New("the migration has no down")

func (c *Change) doMigrate(ctx context.Context, down bool) error {
	r, err := c.newer(down)
	if err != nil {
		return err
	}
	list := c.Journal.Extras.Migrations
	for i := range list {
		m := &list[i]
		if m.Done {
			continue
		}
		c.Report(agentapi.UpgradeMetadata{Reason: fmt.Sprintf("migration %d of %d, version %s", i+1, len(list), m.Version)})
		m.Begun = true
		if err := c.Save(); err != nil {
			return err
		}
		if err := c.runMigration(ctx, r, m.Version, down); err != nil {
			return err
		}
		m.Done = true
		if err := c.Save(); err != nil {
			return err
		}
	}
	return nil
}

// runMigration runs one migration of a version's package.
func (c *Change) runMigration(ctx context.Context, r *runtime.Release, version string, down bool) error {
	for _, m := range r.Component.Migrations {
		if m.Version != version {
			continue
		}
		h, name := &m.Up, "migrate-up"
		if down {
			h, name = m.Down, "migrate-down"
		}
		if h == nil {
			return errNoDown
		}
		if _, err := c.hook(ctx, r, *h, "MUSTER_MIGRATION="+version); err != nil {
			return fmt.Errorf("%s to the state of %s: %w", name, version, err)
		}
		return nil
	}
	return fmt.Errorf("%s has no migration to %s", r.Identity, version)
}

func (c *Change) undoMigrate(ctx context.Context, down bool) error {
	p := &c.Journal.Extras
	if !p.begun() {
		return nil
	}
	if len(p.State) > 0 {
		if err := c.restoreState(ctx); err != nil {
			return fmt.Errorf("%w; %s says how to go back by hand", err, c.restoreText())
		}
		for i := range p.Migrations {
			p.Migrations[i] = Migration{Version: p.Migrations[i].Version}
		}
		return c.Save()
	}
	ctx, cancel := context.WithTimeout(ctx, migrateTimeout)
	defer cancel()
	r, err := c.newer(down)
	if err != nil {
		return err
	}
	for i := len(p.Migrations) - 1; i >= 0; i-- {
		m := &p.Migrations[i]
		if !m.Begun {
			continue
		}
		err := c.runMigration(ctx, r, m.Version, !down)
		switch {
		case errors.Is(err, errNoDown):
			return fmt.Errorf("the migration to %s was run, and the package has neither a down for it nor state-paths: bring the state back by hand, and order a version with force", m.Version)
		case err != nil:
			return err
		}
		m.Begun, m.Done = false, false
		if err := c.Save(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Change) restoreState(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, dataTimeout)
	defer cancel()
	return statecopy.Restore(ctx, c.Disk, c.stateFile(), c.Journal.Extras.State)
}
