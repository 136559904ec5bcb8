package inventory

import (
	"fmt"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/store"
)

// selectUpgradeable restricts q to the agents that can upgrade themselves and are below the newest
// version that is published for agents of their maker.
func selectUpgradeable(q *store.AgentQuery, c fleet.Catalog, now time.Time) error {
	var muster, elastic fleet.Catalog
	for _, p := range c {
		if p.Maker == fleet.MakerElastic {
			elastic = append(elastic, p)
		} else {
			muster = append(muster, p)
		}
	}
	var able kql.Filter = kql.Equals{Field: fleet.AgentSchema(nil).Field("local_metadata.elastic.agent.upgradeable"), Value: true}
	if q.Query != nil {
		able = kql.AllOf{q.Query, able}
	}
	q.Query = able
	if len(elastic) == 0 {
		versions := append(muster.Versions(), "0.0.0") // no agent is below it
		q.VersionBelow = versions[0]
		return nil
	}
	// The query reads documents, which VersionBelow does not.
	var parts []string
	for which, versions := range map[string][]string{"local_metadata.os.type: *": muster.Versions(), "not local_metadata.os.type: *": elastic.Versions()} {
		if len(versions) > 0 {
			parts = append(parts, fmt.Sprintf("(%s and agent.version < %q)", which, versions[0]))
		}
	}
	below, err := kql.Compile(strings.Join(parts, " or "), fleet.AgentSchema(nil), now)
	if err == nil {
		q.Query = kql.AllOf{q.Query, below}
	}
	return err
}
