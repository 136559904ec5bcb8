package action

import (
	"fmt"
	"testing"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func TestAFilteredPageOfActionsReadsUntilItIsFull(t *testing.T) {
	all := make([]Status, 120)
	for i := range all {
		by := "ann"
		if i%3 == 0 {
			by = "bob"
		}
		all[i] = Status{Action: fleet.Action{ID: fmt.Sprint(i), Type: agentapi.ActionUnenroll, CreatedBy: by}}
	}
	read := func(q store.ActionQuery) ([]Status, error) { return fleet.Part(all, q.Offset, q.Limit), nil }
	for _, c := range []struct {
		name   string
		filter Filter
		q      store.ActionQuery
		first  string
		n      int
	}{
		{"no filter", Filter{}, store.ActionQuery{Offset: 10, Limit: 20}, "10", 20},
		{"second page of one key", Filter{CreatedBy: "bob"}, store.ActionQuery{Offset: 30, Limit: 30}, "90", 10},
		{"of a type", Filter{Types: []agentapi.ActionType{agentapi.ActionUnenroll}}, store.ActionQuery{Limit: 5}, "0", 5},
		{"of another type", Filter{Types: []agentapi.ActionType{agentapi.ActionUpgrade}}, store.ActionQuery{Limit: 5}, "", 0},
	} {
		got, err := c.filter.page(c.q, read)
		if err != nil || len(got) != c.n || c.n > 0 && got[0].ID != c.first {
			t.Errorf("%s: got %d actions, error %v; want %d from %s", c.name, len(got), err, c.n, c.first)
		}
	}
}
