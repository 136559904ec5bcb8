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

// Unit says what a figure is measured in.
type Unit string

// Units of figures.
const (
	Seconds   Unit = "s"
	Bytes     Unit = "bytes"
	PerSecond Unit = "per second"
	Number    Unit = ""
	Cores     Unit = "cores"
	Ratio     Unit = "ratio"
)

// Goal is what a figure should be; zero limits are none. Zero says that the figure
// should be 0.
type Goal struct {
	Most, Least float64
	Zero        bool `json:",omitempty"`
}

// goals are what is promised, by scenario and figure, of 18,000 agents on two cores that
// the agents' processes share. The table shows them beside every size.
var goals = map[string]Goal{
	"enrol: rate":            {Least: 500},
	"park: server RSS, most": {Most: 300 << 20},
	"park: first connection and check-in, to a bare TLS connection": {Most: 1.5},
	"checkins: settled agents, per server core":                     {Least: 10_000},
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

// Middle is the median of the values.
func (r *Row) Middle() float64 {
	sorted := slices.Sorted(slices.Values(r.Values))
	return sorted[len(sorted)/2]
}

// Worst is the value that is farthest from good.
func (r *Row) Worst() float64 {
	if r.Unit == PerSecond {
		return slices.Min(r.Values)
	}
	return slices.Max(r.Values)
}

// Met says whether the middle value reaches the goal; without a goal it does.
func (r *Row) Met() bool {
	m := r.Middle()
	return (r.Goal.Most == 0 || m <= r.Goal.Most) && m >= r.Goal.Least && (!r.Goal.Zero || m == 0)
}

// Table is all figures of a run.
type Table struct {
	Machine string `json:"machine"`
	Setup   string `json:"setup"`
	Size    int    `json:"agents"`
	Rows    []*Row `json:"rows"`
	// Profiled is where the time went, if it was asked for.
	Profiled []Profiled `json:"profiled,omitempty"`
	// Failures are what must not happen: something lost, doubled or refused.
	Failures []string `json:"failures"`
}

// add puts a value under its name.
func (t *Table) add(scenario, figure string, unit Unit, value float64) {
	for _, r := range t.Rows {
		if r.Scenario == scenario && r.Figure == figure {
			r.Values = append(r.Values, value)
			return
		}
	}
	t.Rows = append(t.Rows, &Row{Scenario: scenario, Figure: figure, Unit: unit, Values: []float64{value}, Goal: goals[scenario+": "+figure]})
}

// sum adds to the one value of a figure.
func (t *Table) sum(scenario, figure string, n int) {
	for _, r := range t.Rows {
		if r.Scenario == scenario && r.Figure == figure {
			r.Values[0] += float64(n)
			return
		}
	}
	t.add(scenario, figure, Number, float64(n))
}

func (t *Table) took(scenario, figure string, d time.Duration) {
	t.add(scenario, figure, Seconds, d.Seconds())
}

// maxFailures bounds those that are told.
const maxFailures = 50

func (t *Table) fail(format string, args ...any) {
	if len(t.Failures) < maxFailures {
		t.Failures = append(t.Failures, fmt.Sprintf(format, args...))
	}
}

// Spell writes a value as people read it.
func Spell(unit Unit, v float64) string {
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

// spell writes the goal as the table has it.
func (g Goal) spell(unit Unit) string {
	switch {
	case g.Most > 0:
		return "≤ " + Spell(unit, g.Most)
	case g.Least > 0:
		return "≥ " + Spell(unit, g.Least)
	case g.Zero:
		return Spell(unit, 0)
	}
	return ""
}

// heading is that of the table's section in RESULTS.md. A run with profiles has one
// of its own, since to take them costs time that the figures then have in them.
func (t *Table) heading() string {
	return fmt.Sprintf("## %s%s agents, %s\n", t.kind(), thousands(t.Size), t.Setup)
}

func (t *Table) kind() string {
	if len(t.Profiled) > 0 {
		return "Where the time goes: "
	}
	return ""
}

// replaces says whether the table takes the place of a section: one of the same
// kind at the same servers, of whatever size.
func (t *Table) replaces(section string) bool {
	heading, _, _ := strings.Cut(section, "\n")
	return strings.HasPrefix(heading, "## Where the time goes: ") == (t.kind() != "") && strings.HasSuffix(heading, " agents, "+t.Setup)
}

// Markdown writes the table as a section of RESULTS.md.
func (t *Table) Markdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s, the agents' processes beside the server's on loopback.\n\n", t.heading(), t.Machine)
	if len(t.Profiled) > 0 {
		b.WriteString("Processor time as the kernel accounts it, divided by a profile: what a stack names first, from its leaf on, owns it. Made by\n`go tool mage benchprofiles` or with `--profiles`; to profile takes some hundredths of it.\n\n")
		for _, p := range t.Profiled {
			p.markdown(&b)
		}
	} else {
		t.figures(&b)
	}
	if len(t.Failures) == 0 {
		b.WriteString("Nothing was lost, doubled or answered with 5xx.\n")
	} else {
		b.WriteString("What must not happen, and did:\n\n")
		for _, f := range t.Failures {
			fmt.Fprintf(&b, "- %s\n", f)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// figures writes those with a goal, and then the others.
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
			worst = Spell(r.Unit, r.Worst())
		}
		return fmt.Sprintf("| %s | %s | %s | %s |", r.Scenario, r.Figure, Spell(r.Unit, r.Middle()), worst)
	}
	if len(judged) > 0 {
		b.WriteString("| scenario | figure | middle | worst | goal | |\n|---|---|--:|--:|--:|---|\n")
		for _, r := range judged {
			verdict := "**missed**"
			if r.Met() {
				verdict = "met"
			}
			fmt.Fprintf(b, "%s %s | %s |\n", cells(r), r.Goal.spell(r.Unit), verdict)
		}
		b.WriteString("\n")
	}
	if len(others) > 0 {
		b.WriteString("Without a goal:\n\n| scenario | figure | middle | worst |\n|---|---|--:|--:|\n")
		for _, r := range others {
			b.WriteString(cells(r) + "\n")
		}
		b.WriteString("\n")
	}
}

// title begins RESULTS.md.
const title = "# What a fleet costs a server\n\nWritten by `go tool mage bench` and by `--results` of the load generator: the middle of what was measured more than\nonce, and the worst. A section stays as it is until its own servers are measured again.\n"

// Report writes the table into RESULTS.md, in the place of the one it had there. What
// was measured at other servers, and where the time went, stays. So does nothing that
// has no heading of the second level.
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

// machine is this machine's processor, its cores and its system: no name of it.
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
