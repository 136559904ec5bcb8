package plan

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// title is a rollout as messages name it.
func Title(r *fleet.Rollout) string {
	if r.Plan.Name == "" {
		return "rollout " + r.ID
	}
	return "rollout “" + r.Plan.Name + "” (" + r.ID + ")"
}

// shown is how many names a sentence lists before it only counts.
const shown = 10

func List(names []string) string {
	if len(names) > shown {
		return strings.Join(names[:shown], ", ") + fmt.Sprintf(" and %d more", len(names)-shown)
	}
	return strings.Join(names, ", ")
}

// count is a number with its noun.
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

func VersionText(version string) string { return cmp.Or(version, "no version it has told") }

// figure is a number for a sentence: three digits that tell something, more where
// it is larger, and no exponent.
func Number(f float64) string {
	decimals := 2
	for size := math.Abs(f); decimals > 0 && size >= 9.995; size /= 10 {
		decimals--
	}
	s := strconv.FormatFloat(f, 'f', decimals, 64)
	if decimals > 0 {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// short is a duration without the zeros at its end.
func short(d time.Duration) string {
	d = d.Round(time.Second)
	s := d.String()
	if d >= time.Minute && d%time.Minute == 0 {
		s = s[:len(s)-len("0s")]
	}
	if d >= time.Hour && d%time.Hour == 0 {
		s = s[:len(s)-len("0m")]
	}
	return s
}

// shortSpan spells a duration without zeros that say nothing: 10m, 168h.
func Span(d fleet.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
