package plan

import (
	"cmp"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// Title returns the name of a rollout with its id, for messages whose reader may need to name it.
func Title(r *fleet.Rollout) string {
	if r.Plan.Name == "" {
		return Name(r)
	}
	return Name(r) + " (" + r.ID + ")"
}

// Name returns the name of a rollout for records that have its id beside the text.
func Name(r *fleet.Rollout) string {
	if r.Plan.Name == "" {
		return "rollout " + r.ID
	}
	return "rollout “" + r.Plan.Name + "”"
}

// Count returns a number with its noun.
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// AllowDowngrade returns the command by which publishers let hosts go back to a version of
// what the plan upgrades.
func AllowDowngrade(p *fleet.Plan, version string) string {
	command := "muster package allow-downgrade " + version
	if p.Component != "" {
		command += " --component " + p.Component
	}
	return command
}

// VersionText returns a version for a sentence.
func VersionText(version string) string { return cmp.Or(version, "an unknown version") }

// Number formats a number for a sentence: three significant digits, more for larger
// numbers, and no exponent.
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

// short is Span of a duration in whole seconds.
// short never returns a negative duration: the clocks of servers differ.
func short(d time.Duration) string { return Span(fleet.Duration(max(0, d).Round(time.Second))) }

// Span formats a duration without zeros at its end: 10m, 168h.
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
