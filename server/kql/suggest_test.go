package kql_test

import (
	"fmt"
	"strings"

	"github.com/muster-fleet/muster/server/kql"
)

// showSuggestion formats the suggestions for a query with its cursor at |.
func showSuggestion(query string) string {
	before, after, _ := strings.Cut(query, "|")
	query = before + after
	s := kql.Suggest(query, len(before), schema)
	var lines []string
	for _, c := range s.Completions {
		line := fmt.Sprintf("%s: %s", c.Kind, query[:c.From]+"["+c.Text+"]"+query[c.To:])
		if c.Description != "" {
			line += " # " + c.Description
		}
		lines = append(lines, line)
	}
	if v := s.Values; v != nil {
		lines = append(lines, fmt.Sprintf("ask for %s like %q: %s", v.Field.Name, v.Prefix, query[:v.From]+"[…]"+query[v.To:]))
	}
	if len(lines) == 0 {
		return "nothing"
	}
	return strings.Join(lines, "\n")
}
