package sqlite

import (
	"context"
	"database/sql"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

func (g agents) Each(ctx context.Context, filter store.AgentFilter, f func(fleet.Agent)) error {
	cond, err := filterCondition(filter)
	if err != nil {
		return err
	}
	rows, err := g.s.readers.QueryContext(ctx, cond.with+`SELECT `+agentColumns+` FROM facts f`+joinLastSeen+joinDocument+cond.where, cond.args...)
	if err != nil {
		return g.s.fault("read agents", err)
	}
	return g.s.fault("read agents", eachDocument(g.s, rows, g.document, func(a fleet.Agent) {
		a.Forget() // f may retain the agent
		f(a)
	}))
}

const censusQuery = `SELECT f.id, f.policy_id, f.version, f.version_since, f.healthy_since, l.last_checkin, f.labels FROM facts f` + joinLastSeen + ` WHERE f.active AND f.audit_unenrolled NOT IN ('uninstall', 'orphaned')`

func (g agents) Census(ctx context.Context, f func(fleet.Census)) error {
	return g.s.each(ctx, censusQuery, nil, func(scan scan) error {
		c := fleet.Census{Active: true}
		var since, healthy, last sql.NullInt64
		if err := scan(&c.ID, &c.PolicyID, &c.Version, &since, &healthy, &last, &c.Labels); err != nil {
			return err
		}
		if since.Valid {
			c.VersionSince = toTime(since.Int64)
		}
		if healthy.Valid {
			c.HealthySince = toTime(healthy.Int64)
		}
		c.LastCheckin = toTimePtr(last)
		f(c)
		return nil
	})
}
