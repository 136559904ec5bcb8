package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// tallyQuery selects, for each agent, the number of its classes, and the values of its fields if
// there are any.
// The number has the classes as digits: the first list's class is the lowest digit, in base
// len(list)+1.
func tallyQuery(filter store.AgentFilter, q store.TallyQuery) (text string, args []any, err error) {
	cond, err := filterCondition(filter)
	if err != nil {
		return "", nil, err
	}
	// The selected expressions come between the two parts of the condition, and so do their
	// arguments.
	before := strings.Count(cond.with, "?")
	args = slices.Clone(cond.args[:before])
	class, factor := "0", 1
	for _, list := range q.Classes {
		var first strings.Builder
		for i, f := range list {
			c, err := compile(f)
			if err != nil {
				return "", nil, err
			}
			fmt.Fprintf(&first, ` WHEN %s THEN %d`, c.where, i*factor)
			args = append(args, c.args...)
			cond.lastSeen, cond.doc = cond.lastSeen || c.lastSeen, cond.doc || c.doc
		}
		class += fmt.Sprintf(` + CASE WHEN 0 THEN 0%s ELSE %d END`, first.String(), len(list)*factor)
		factor *= len(list) + 1
	}
	// One column costs less than several, and each distinct text is separated once.
	var columns []string
	for _, f := range q.Fields {
		s, err := sourceOf(f.Field)
		if err != nil {
			return "", nil, err
		}
		cond.lastSeen, cond.doc = cond.lastSeen || s.lastSeen(), cond.doc || s.doc()
		columns = append(columns, "octet_length("+s.all()+")", "':'", s.all())
	}
	selected := class
	if len(q.Fields) > 0 {
		selected += ", " + strings.Join(columns, " || ")
	}
	return fmt.Sprintf(`%sSELECT %s FROM facts f%s%s`, cond.with, selected, cond.joins(), cond.where), append(args, cond.args[before:]...), nil
}

// all returns the SQL of all values of a source. Where mayList is true, it is a JSON list of
// texts, or one text after an equals sign, or empty. Otherwise it is one text.
func (s source) all() string {
	switch {
	case s.list:
		return s.column
	case s.column != "":
		return "coalesce(" + s.column + ", '')"
	case s.components:
		return "(SELECT json_group_array(t) FROM (SELECT " + componentText(s.path) + " AS t FROM " + eachComponent + " c) WHERE t IS NOT NULL)"
	case s.metadata:
		doc := s.document()
		copied := ""
		if s.copied != "" {
			copied = "WHEN " + s.copiedIf + " THEN '=' || " + s.copied + " "
		}
		kind := "json_type(" + doc + ", '" + s.path + "') = "
		return "CASE " + copied + "WHEN " + kind + "'array' THEN " + doc + " -> '" + s.path + "' WHEN " + kind + "'text' THEN '=' || (" + doc + " ->> '" + s.path + "') ELSE '' END"
	}
	return "coalesce(" + agentDoc + " ->> '" + s.path + "', '')"
}

// mayList reports whether all returns a JSON list for some agents.
func (s source) mayList() bool { return s.list || s.components || s.metadata }

func (g agents) tally(ctx context.Context, filter store.AgentFilter, q store.TallyQuery) (store.Tally, error) {
	text, args, err := tallyQuery(filter, q)
	if err != nil {
		return store.Tally{}, err
	}
	rows, err := g.s.readers.QueryContext(ctx, text, args...)
	if err != nil {
		return store.Tally{}, g.s.fault("count agents", err)
	}
	// Few combinations occur, so the rows are counted as they are, and their values are
	// separated afterwards. GROUP BY would sort the rows.
	counts := map[tallied]int{}
	err = g.s.eachRow(rows, func(scan scan) error {
		var row tallied
		columns := []any{&row.class, &row.values}
		if len(q.Fields) == 0 {
			columns = columns[:1]
		}
		err := scan(columns...)
		counts[row]++
		return err
	})
	if err != nil {
		return store.Tally{}, g.s.fault("count agents", err)
	}
	return separate(q, counts)
}

// tallied is a row of tallyQuery.
type tallied struct {
	class  int
	values string
}

// columns separates the values of n fields.
func (t tallied) columns(n int) ([]string, error) {
	out, rest := make([]string, n), t.values
	for i := range out {
		length, after, _ := strings.Cut(rest, ":")
		size, err := strconv.Atoi(length)
		if err != nil || size > len(after) {
			return nil, fleet.Errorf(fleet.Internal, "count agents: a row has no value %d", i)
		}
		out[i], rest = after[:size], after[size:]
	}
	return out, nil
}

// separate converts the counts of rows to those of classes and values.
func separate(q store.TallyQuery, counts map[tallied]int) (store.Tally, error) {
	out := store.Tally{Classes: make([][]int, len(q.Classes)), Values: make([]map[string]store.TallyCount, len(q.Fields))}
	for i, list := range q.Classes {
		out.Classes[i] = make([]int, len(list)+1)
	}
	mayList := make([]bool, len(q.Fields))
	for i, f := range q.Fields {
		s, err := sourceOf(f.Field)
		if err != nil {
			return store.Tally{}, err
		}
		out.Values[i], mayList[i] = map[string]store.TallyCount{}, s.mayList()
	}
	for row, n := range counts {
		out.Total += n
		classes, rest := make([]int, len(q.Classes)), row.class
		for i, list := range q.Classes {
			classes[i] = rest % (len(list) + 1)
			rest /= len(list) + 1
			out.Classes[i][classes[i]] += n
		}
		columns, err := row.columns(len(q.Fields))
		if err != nil {
			return store.Tally{}, err
		}
		for i, f := range q.Fields {
			for _, v := range valuesIn(columns[i], mayList[i], f.Prefix) {
				c := out.Values[i][v]
				c.Agents += n
				if f.ByClass && len(classes) > 0 {
					if c.Classes == nil {
						c.Classes = make([]int, len(q.Classes[0])+1)
					}
					c.Classes[classes[0]] += n
				}
				out.Values[i][v] = c
			}
			if len(out.Values[i]) > store.MaxTallyValues {
				return store.Tally{}, fleet.Errorf(fleet.Invalid, "%s has more than %d values, which cannot be counted", f.Field.Name, store.MaxTallyValues)
			}
		}
	}
	return out, nil
}

// valuesIn returns the distinct values in the result of source.all, or the empty text if there
// is none.
func valuesIn(text string, mayList bool, prefix string) []string {
	list := []any{text}
	if one, ok := strings.CutPrefix(text, "="); mayList && ok {
		list = []any{one}
	} else if mayList {
		list = nil
		if json.Unmarshal([]byte(text), &list) != nil {
			list = nil // there is none
		}
	}
	var out []string
	for _, e := range list {
		v, _ := e.(string)
		v, ok := strings.CutPrefix(v, prefix)
		if ok && v != "" && !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	if out == nil {
		return []string{""}
	}
	return out
}
