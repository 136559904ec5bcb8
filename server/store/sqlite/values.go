package sqlite

import (
	"context"

	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/store"
)

func (g agents) values(ctx context.Context, filter store.AgentFilter, field *kql.Field, prefix string, limit int) ([]string, error) {
	query, args, err := valuesQuery(filter, field)
	if err != nil {
		return nil, err
	}
	out := []string{}
	rows, err := g.s.readers.QueryContext(ctx, query, append(args, prefix, max(limit, 0))...)
	if err != nil {
		return nil, g.s.fault("read values of agents", err)
	}
	err = g.s.eachRow(rows, func(scan scan) error {
		var v string
		err := scan(&v)
		out = append(out, v)
		return err
	})
	if err != nil {
		return nil, g.s.fault("read values of agents", err)
	}
	return out, nil
}

// valuesQuery returns a query that takes args, the prefix and the limit.
func valuesQuery(filter store.AgentFilter, field *kql.Field) (text string, args []any, err error) {
	cond, err := filterCondition(filter)
	if err != nil {
		return "", nil, err
	}
	s, err := sourceOf(field)
	if err != nil {
		return "", nil, err
	}
	cond.lastSeen, cond.doc = cond.lastSeen || s.lastSeen(), cond.doc || s.doc()
	value, each := s.column, ""
	switch {
	case s.list:
		value, each = "j.value", ` JOIN json_each(`+s.column+`) j`
	case s.components:
		value, each = componentText(s.path), ` JOIN `+eachComponent+` c`
	case s.metadata:
		value = "j.value"
		copied := ""
		if s.copied != "" {
			copied = ` WHEN ` + s.copiedIf + ` THEN json_array(` + s.copied + `)`
		}
		doc := s.document()
		each = ` JOIN json_each(CASE` + copied + ` WHEN json_type(` + doc + `, '` + s.path + `') = 'array' THEN ` + doc + ` -> '` + s.path + `'
			WHEN json_type(` + doc + `, '` + s.path + `') = 'text' THEN json_array(` + doc + ` ->> '` + s.path + `') ELSE '[]' END) j ON j.type = 'text'`
	case s.column == "":
		value = `(` + agentDoc + ` ->> '` + s.path + `')`
	}
	return cond.with + `SELECT DISTINCT v FROM (SELECT ` + value + ` AS v FROM facts f` + cond.joins() + each + cond.where + `)
		WHERE v <> '' AND instr(lower(v), lower(?)) = 1 ORDER BY v LIMIT ? + 0`, cond.args, nil
}
