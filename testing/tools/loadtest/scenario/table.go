//go:build linux

package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Unit is the unit of a figure.
type Unit string

// The units of figures.
const (
	Seconds   Unit = "s"
	Bytes     Unit = "bytes"
	PerSecond Unit = "per second"
	Number    Unit = ""
	Cores     Unit = "cores"
	Ratio     Unit = "ratio"
)

// Goal is the range that a figure should be in. Most and Least are limits unless they
// are 0; Zero requires the figure to be 0.
type Goal struct {
	Most, Least float64
	Zero        bool `json:",omitempty"`
}

// goals are by scenario and figure, for 18,000 agents on two cores that the generators
// share. Tables of other sizes show them too.
var goals = map[string]Goal{
	"enrol: rate":            {Least: 500},
	"park: server RSS, most": {Most: 300 << 20},
	"park: first connection and check-in, to a bare TLS connection": {Most: 1.5},
	"checkins: stable agents, per server core":                      {Least: 10_000},
	"single: delivered p99":                                         {Most: 0.020},
	"upgrade-all: delivered p99":                                    {Most: 2.5},
	"upgrade-all: last ack answered":                                {Most: 4},
	"upgrade-all: server CPU per deliver + ack + poll":              {Most: 0.230e-3},
	"behind: longer while the other is delivered, p99":              {Most: 0.5},
	"storm: all checked in again":                                   {Most: 25},
	"storm: answers of 5xx":                                         {Zero: true},
	"storm: admin API, longest":                                     {Most: 0.5},
	"restart: all checked in again":                                 {Most: 25},
	"restart: answers of 5xx":                                       {Zero: true},
	"restart: admin API, longest":                                   {Most: 0.5},
}

// Row is one figure of a scenario, measured once or several times.
type Row struct {
	Scenario string    `json:"scenario"`
	Figure   string    `json:"figure"`
	Unit     Unit      `json:"unit"`
	Values   []float64 `json:"values"`
	Goal     Goal      `json:"goal,omitzero"`
}

// Median returns the median of the values.
func (r *Row) Median() float64 {
	sorted := slices.Sorted(slices.Values(r.Values))
	return sorted[len(sorted)/2]
}

// Worst returns the smallest rate, or the largest of other values.
func (r *Row) Worst() float64 {
	if r.Unit == PerSecond {
		return slices.Min(r.Values)
	}
	return slices.Max(r.Values)
}

// Met reports whether the median meets the goal, if there is one.
func (r *Row) Met() bool {
	m := r.Median()
	return (r.Goal.Most == 0 || m <= r.Goal.Most) && m >= r.Goal.Least && (!r.Goal.Zero || m == 0)
}

// Table has all figures of a run.
type Table struct {
	Machine string `json:"machine"`
	Setup   string `json:"setup"`
	Size    int    `json:"agents"`
	Rows    []*Row `json:"rows"`
	// Profiled is how CPU time was spent, if Options.Profiles is set.
	Profiled []Profiled `json:"profiled,omitempty"`
	// Failures are events that must never happen: something lost, duplicated or refused.
	Failures []string `json:"failures"`
}

// add appends a value to the row of a figure.
func (t *Table) add(scenario, figure string, unit Unit, value float64) {
	for _, r := range t.Rows {
		if r.Scenario == scenario && r.Figure == figure {
			r.Values = append(r.Values, value)
			return
		}
	}
	t.Rows = append(t.Rows, &Row{Scenario: scenario, Figure: figure, Unit: unit, Values: []float64{value}, Goal: goals[scenario+": "+figure]})
}

// sum adds n to the single value of a figure.
func (t *Table) sum(scenario, figure string, n int) {
	for _, r := range t.Rows {
		if r.Scenario == scenario && r.Figure == figure {
			r.Values[0] += float64(n)
			return
		}
	}
	t.add(scenario, figure, Number, float64(n))
}

func (t *Table) addDuration(scenario, figure string, d time.Duration) {
	t.add(scenario, figure, Seconds, d.Seconds())
}

// maxFailures bounds the failures in a table.
const maxFailures = 50

func (t *Table) fail(format string, args ...any) {
	if len(t.Failures) < maxFailures {
		t.Failures = append(t.Failures, fmt.Sprintf(format, args...))
	}
}

// Format formats a value with its unit for people.
func Format(unit Unit, v float64) string {
	switch unit {
	case Seconds:
		switch size := max(v, -v); {
		case size == 0:
			return "0 ms"
		case size < 0.001:
			return fmt.Sprintf("%.0f µs", v*1e6)
		case size < 0.010:
			return fmt.Sprintf("%.1f ms", v*1e3)
		case size < 1:
			return fmt.Sprintf("%.0f ms", v*1e3)
		}
		return fmt.Sprintf("%.2f s", v)
	case Bytes:
		if v < 1<<20 {
			return fmt.Sprintf("%.1f KiB", v/(1<<10))
		}
		return fmt.Sprintf("%.0f MiB", v/(1<<20))
	case PerSecond:
		return fmt.Sprintf("%.0f/s", v)
	case Cores:
		return fmt.Sprintf("%.2f cores", v)
	case Ratio:
		return fmt.Sprintf("%.2f times", v)
	default:
		return fmt.Sprintf("%.0f", v)
	}
}

// format formats the goal for the table.
func (g Goal) format(unit Unit) string {
	switch {
	case g.Most > 0:
		return "≤ " + Format(unit, g.Most)
	case g.Least > 0:
		return "≥ " + Format(unit, g.Least)
	case g.Zero:
		return Format(unit, 0)
	}
	return ""
}

// heading returns the heading of the table's section in RESULTS.md. A run with profiles
// has a section of its own, since profiling slows the server and so changes the figures.
func (t *Table) heading() string {
	return fmt.Sprintf("## %s%s agents, %s\n", t.kind(), thousands(t.Size), t.Setup)
}

func (t *Table) kind() string {
	if len(t.Profiled) > 0 {
		return "Where the time goes: "
	}
	return ""
}

// replaces reports whether the table replaces a section: one of the same kind and the
// same setup, of any size.
func (t *Table) replaces(section string) bool {
	heading, _, _ := strings.Cut(section, "\n")
	return strings.HasPrefix(heading, "## Where the time goes: ") == (t.kind() != "") && strings.HasSuffix(heading, " agents, "+t.Setup)
}

// Markdown writes the table as a section of RESULTS.md.
func (t *Table) Markdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s, the agents' processes beside the server's on loopback.\n\n", t.heading(), t.Machine)
	if len(t.Profiled) > 0 {
		b.WriteString("CPU time as the kernel accounts it, divided by a profile: a sample belongs to the first group that its stack names, from the leaf on.\nMade by `go tool mage benchprofiles` or with `--profiles`; profiling itself takes a few percent.\n\n")
		for _, p := range t.Profiled {
			p.markdown(&b)
		}
	} else {
		t.figures(&b)
	}
	if len(t.Failures) == 0 {
		b.WriteString("Nothing was lost, duplicated or answered with 5xx.\n")
	} else {
		b.WriteString("Failures:\n\n")
		for _, f := range t.Failures {
			fmt.Fprintf(&b, "- %s\n", f)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// figures writes the figures with a goal, and then the others.
func (t *Table) figures(b *strings.Builder) {
	var judged, others []*Row
	for _, r := range t.Rows {
		if r.Goal != (Goal{}) {
			judged = append(judged, r)
		} else {
			others = append(others, r)
		}
	}
	cells := func(r *Row) string {
		worst := ""
		if len(r.Values) > 1 {
			worst = Format(r.Unit, r.Worst())
		}
		return fmt.Sprintf("| %s | %s | %s | %s |", r.Scenario, r.Figure, Format(r.Unit, r.Median()), worst)
	}
	if len(judged) > 0 {
		b.WriteString("| scenario | figure | median | worst | goal | |\n|---|---|--:|--:|--:|---|\n")
		for _, r := range judged {
			verdict := "**missed**"
			if r.Met() {
				verdict = "met"
			}
			fmt.Fprintf(b, "%s %s | %s |\n", cells(r), r.Goal.format(r.Unit), verdict)
		}
		b.WriteString("\n")
	}
	if len(others) > 0 {
		b.WriteString("Without a goal:\n\n| scenario | figure | median | worst |\n|---|---|--:|--:|\n")
		for _, r := range others {
			b.WriteString(cells(r) + "\n")
		}
		b.WriteString("\n")
	}
}

// title is the beginning of RESULTS.md.
const title = "# What a fleet costs a server\n\nWritten by `go tool mage bench` and by `--results` of the load test. A figure that was measured several times has its\nmedian and its worst value. A run replaces only the section of the same setup.\n"

// Report writes the table into RESULTS.md, in place of the section that it replaces. It
// keeps all other sections, and removes text before the first heading of the second
// level.
func (t *Table) Report(file string) error {
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var own strings.Builder
	if err := t.Markdown(&own); err != nil {
		return err
	}
	sections := strings.Split("\n"+string(old), "\n## ")[1:]
	placed := false
	text := title
	for _, s := range sections {
		s = "## " + strings.TrimRight(s, "\n") + "\n"
		if t.replaces(s) {
			if placed {
				continue
			}
			s, placed = own.String(), true
		}
		text += "\n" + s
	}
	if !placed {
		text += "\n" + own.String()
	}
	return os.WriteFile(file, []byte(text), 0o644)
}

func thousands(n int) string {
	text := fmt.Sprint(n)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

// machine describes this machine's processor, cores and system, without its name.
func machine() string {
	find := func(file, key, sep string) string {
		text, _ := os.ReadFile(file)
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, sep); ok && strings.TrimSpace(name) == key {
				return strings.Trim(strings.TrimSpace(value), `"`)
			}
		}
		return ""
	}
	return fmt.Sprintf("%s, %d cores, %s", cmp.Or(find("/proc/cpuinfo", "model name", ":"), "processor unknown"), runtime.NumCPU(),
		cmp.Or(find("/etc/os-release", "PRETTY_NAME", "="), "Linux"))
}
