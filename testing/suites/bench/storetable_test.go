//go:build linux

package bench

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// comparison is the table of both stores.
type comparison struct {
	rows     []*comparedRow
	measured []kind
}

type comparedRow struct {
	name     string
	of       string           // the row that it is a part of, if any
	cells    map[string]cells // by store
	requests string
}

// cells are a store's median, 99th percentile and CPU time.
type cells [3]string

func (t *comparison) row(name, of string) *comparedRow {
	for _, r := range t.rows {
		if r.name == name && r.of == of {
			return r
		}
	}
	r := &comparedRow{name: name, of: of, cells: map[string]cells{}}
	t.rows = append(t.rows, r)
	return r
}

func (t *comparison) add(name string, k kind, got timing) {
	rate := name
	if len(got.each) > 0 {
		t.row(name, "").cells[k.name] = cells{spell(percentile(got.each, 50)), spell(percentile(got.each, 99)), got.cpu}
		rate, got.cpu = "· all of them", ""
	}
	if got.took > 0 {
		t.row(rate+"; how many a second", name).cells[k.name] = cells{spell(got.took), fmt.Sprintf("%.0f", float64(got.n)/got.took.Seconds()), got.cpu}
	}
	if got.partName != "" {
		t.row("· "+got.partName, name).cells[k.name] = cells{spell(percentile(got.part, 50)), spell(percentile(got.part, 99))}
	}
}

// requests adds the requests of an operation by method and call.
func (t *comparison) requests(name string, kinds map[string]float64) {
	calls := map[string]float64{}
	for kind, n := range kinds {
		_, call, _ := strings.Cut(kind, " ")
		calls[strings.TrimPrefix(call, "_")] += n
	}
	var parts []string
	sum := 0.0
	for _, call := range slices.SortedFunc(maps.Keys(calls), func(a, b string) int { return cmp.Or(cmp.Compare(calls[b], calls[a]), cmp.Compare(a, b)) }) {
		if n := number(calls[call]); n != number(0) {
			sum += calls[call]
			parts = append(parts, n+" "+call)
		}
	}
	text := number(sum)
	if len(parts) > 1 {
		text += ": " + strings.Join(parts, ", ")
	} else if len(parts) == 1 {
		text = parts[0]
	}
	t.row(name, "").requests = text
}

// number formats a mean count.
func number(v float64) string {
	switch {
	case v < 0.005:
		return "0"
	case v < 0.95:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.1f", v)
}

// percentile returns the nearest-rank percentile.
func percentile(all []time.Duration, p int) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[(len(sorted)*p+99)/100-1]
}

func spell(d time.Duration) string {
	switch ms := float64(d) / float64(time.Millisecond); {
	case ms < 1:
		return fmt.Sprintf("%.2f ms", ms)
	case ms < 10:
		return fmt.Sprintf("%.1f ms", ms)
	case ms < 1000:
		return fmt.Sprintf("%.0f ms", ms)
	default:
		return fmt.Sprintf("%.2f s", ms/1000)
	}
}

func of(r *comparedRow, k kind) []string {
	c := r.cells[k.name]
	return c[:]
}

// report prints the table, and writes it into STORES.md if write is set.
func (t *comparison) report(b *testing.B, head string, write bool) {
	b.Helper()
	out := bytes.NewBufferString(head)
	fmt.Fprintf(out, "| | %[1]s p50 | p99 | CPU | %[2]s p50 | p99 | CPU + node's | requests to %[2]s |\n|---|--:|--:|--:|--:|--:|--:|---|\n", embedded.title, elasticsearch.title)
	for _, r := range t.rows {
		fmt.Fprintf(out, "| %s | %s | %s | %s |\n", r.name, strings.Join(of(r, embedded), " | "), strings.Join(of(r, elasticsearch), " | "), r.requests)
	}
	fmt.Println("\n" + out.String())
	if !write {
		return
	}
	if err := os.WriteFile("STORES.md", out.Bytes(), 0o644); err != nil {
		b.Fatal(err)
	}
}
