package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/adminapi"
)

// versionWords is where a rollout leads.
func versionWords(r adminapi.Rollout) string {
	if r.RollbackOf != nil {
		return firstOf(deref(r.Plan.Version), "their last healthy versions")
	}
	return deref(r.Plan.Version)
}

// called is a rollout's name, with its id.
func called(r adminapi.Rollout) string {
	if r.Plan.Name == "" {
		return r.Id
	}
	return fmt.Sprintf("%q (%s)", r.Plan.Name, r.Id)
}

func bad(c adminapi.Counts) int { return c.Failed + c.RolledBack }

func inFlight(c adminapi.Counts) int { return c.Offered + c.Upgrading + c.Verifying }

// waitsFor is the most important thing a rollout waits for, or what stopped it.
func waitsFor(r adminapi.Rollout, now time.Time) string {
	waiting := deref(r.Waiting)
	switch {
	case r.State == adminapi.RolloutPaused && r.Stop != nil:
		return plain(string(r.Stop.Kind))
	case len(waiting) == 0:
		return "-"
	}
	return plain(waiting[0].Code) + left(waiting[0], now)
}

// left is how long a wait lasts yet.
func left(w adminapi.Wait, now time.Time) string {
	if w.Until == nil {
		return ""
	}
	if d := w.Until.Sub(now); d > 0 {
		return ", " + roughly(d)
	}
	return ", now"
}

// roughly is a duration with the two units people would say.
func roughly(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Round(time.Second).Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Round(time.Minute).Minutes()))
	case d < 48*time.Hour:
		d = d.Round(time.Minute)
		return fmt.Sprintf("%d h %02d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d days", int(d.Round(24*time.Hour).Hours()/24))
}

// progressLine is a rollout in one line.
func progressLine(r adminapi.Rollout) string {
	c := r.Counts
	words := []string{string(r.State)}
	if batches := deref(r.Batches); len(batches) > 1 {
		words = append(words, fmt.Sprintf("batch %d of %d", current(batches)+1, len(batches)))
	}
	words = append(words, fmt.Sprintf("%d of %d done", c.Succeeded, c.Total))
	for _, row := range []struct {
		n    int
		noun string
	}{{inFlight(c), "in flight"}, {c.Held, "away"}, {bad(c), "failed"}, {c.Withdrawn, "withdrawn"}, {c.Skipped, "skipped"}, {c.Expired, "expired"}, {c.Cancelled, "cancelled"}} {
		if row.n > 0 {
			words = append(words, fmt.Sprintf("%d %s", row.n, row.noun))
		}
	}
	line := strings.Join(words, ", ")
	if r.Stop != nil && r.State == adminapi.RolloutPaused {
		return line + ": " + r.Stop.Text
	}
	if waiting := deref(r.Waiting); len(waiting) > 0 {
		line += "; waits: " + waiting[0].Text
		if waiting[0].Until != nil {
			line += " (until " + waiting[0].Until.Local().Format(time.DateTime) + ")"
		}
	}
	return line
}

// current is the index of the last batch that has begun.
func current(batches []adminapi.Batch) int {
	at := 0
	for i, b := range batches {
		if b.StartedAt != nil {
			at = i
		}
	}
	return at
}

// printRollout shows one rollout; most bounds its batches, around the current
// one, -1 shows all.
func printRollout(w io.Writer, r adminapi.Rollout, now time.Time, most int) {
	fmt.Fprintf(w, "%s  %s\n", r.Plan.Name, r.Id)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "  %-10s %s\n", name, fmt.Sprintf(format, args...))
	}
	row("state", "%s", r.State)
	row("version", "%s", firstOf(versionWords(r), "-"))
	row("strategy", "%s", plain(string(r.Plan.Strategy.Kind)))
	row("made", "%s by %s", ago(&r.CreatedAt, now), r.CreatedBy)
	if r.StartedAt != nil {
		row("started", "%s by %s", ago(r.StartedAt, now), deref(r.StartedBy))
	}
	if r.EndedAt != nil {
		row("ended", "%s", ago(r.EndedAt, now))
	}
	if r.RollbackOf != nil {
		row("puts back", "rollout %s", *r.RollbackOf)
	}
	if r.RolledBackBy != nil {
		row("back by", "rollout %s", *r.RolledBackBy)
	}
	row("agents", "%s", countWords(r.Counts))
	if stop := r.Stop; stop != nil && r.State == adminapi.RolloutPaused {
		row("paused", "%s (%s, %s)", stop.Text, stop.By, ago(&stop.At, now))
		if stop.Withdrawn > 0 {
			row("", "%s taken back", counted(stop.Withdrawn, "offer"))
		}
	}
	if r.PauseAsked != nil && r.State == adminapi.RolloutRunning {
		row("pauses", "when this batch has ended, says %s", r.PauseAsked.By)
	}
	for _, wait := range deref(r.Waiting) {
		row("waits", "%s%s", wait.Text, left(wait, now))
	}
	if e := r.Exposure; e != nil {
		row("exposure", "%s", exposureWords(*e))
	}
	if plan := deref(r.Plan.Migration).RecoveryPlan; plan != nil && (bad(r.Counts) > 0 || r.State == adminapi.RolloutPaused) {
		row("recovery", "%s", *plan)
	}
	printBatches(w, deref(r.Batches), most)
	for _, next := range nextSteps(r) {
		fmt.Fprintln(w, next)
	}
}

func countWords(c adminapi.Counts) string {
	words := []string{fmt.Sprintf("%d of %d done", c.Succeeded, c.Total)}
	for _, row := range []struct {
		n    int
		noun string
	}{
		{c.Offered, "offered"},
		{c.Upgrading, "upgrading"},
		{c.Verifying, "verifying"},
		{c.Failed, "failed"},
		{c.RolledBack, "rolled back"},
		{c.Pending, "pending"},
		{c.Held, "away"},
		{c.Withdrawn, "withdrawn"},
		{c.Skipped, "skipped"},
		{c.Expired, "expired"},
		{c.Cancelled, "cancelled"},
	} {
		if row.n > 0 {
			words = append(words, fmt.Sprintf("%d %s", row.n, row.noun))
		}
	}
	return strings.Join(words, ", ")
}

func exposureWords(e adminapi.Exposure) string {
	words := fmt.Sprintf("%d of %s run %s or were offered it; %d may, until it has %.0f healthy agent-hours (it has %.1f)",
		e.Exposed, counted(e.Fleet, "agent"), e.Version, e.Limit, e.NeededHours, e.HealthyHours)
	if t := e.Tightest; t != nil {
		words += fmt.Sprintf("; of %s %s %d of %d", t.Label, t.Value, t.Exposed, t.Limit)
	}
	return words
}

func printBatches(w io.Writer, batches []adminapi.Batch, most int) {
	if len(batches) == 0 {
		return
	}
	from, to := 0, len(batches)
	if most >= 0 && len(batches) > most {
		from = max(0, min(current(batches)-most/2, len(batches)-most))
		to = from + most
	}
	table(w, "BATCH\tKIND\tAGENTS\tDONE\tIN FLIGHT\tAWAY\tFAILED\tSTATE", func(add func(...any)) {
		for _, b := range batches[from:to] {
			kind := string(b.Kind)
			if b.Ring > 0 {
				kind += fmt.Sprintf(" of ring %d", b.Ring)
			}
			add(b.Index+1, kind, b.Counts.Total, b.Counts.Succeeded, inFlight(b.Counts), b.Counts.Held, bad(b.Counts), batchState(b))
		}
	})
	if rest := len(batches) - (to - from); rest > 0 {
		fmt.Fprintf(w, "… and %d more batches\n", rest)
	}
}

func batchState(b adminapi.Batch) string {
	switch {
	case b.StartedAt == nil:
		return "not begun"
	case b.EndedAt == nil:
		return "under way"
	case b.ClearedAt == nil:
		return "watched"
	}
	return "done"
}

// nextSteps are the commands that fit the state.
func nextSteps(r adminapi.Rollout) []string {
	id := r.Id
	switch r.State {
	case adminapi.RolloutDraft:
		return []string{fmt.Sprintf("Start it with `muster rollouts start %s`.", id)}
	case adminapi.RolloutPaused:
		return []string{fmt.Sprintf("Go on with `muster rollouts resume %s`, or back with `muster rollouts rollback %s --scope failed`.", id, id)}
	case adminapi.RolloutRunning:
		for _, w := range deref(r.Waiting) {
			if w.Code == "approval" {
				return []string{fmt.Sprintf("Let it go on with `muster rollouts approve %s`.", id)}
			}
		}
	case adminapi.RolloutFailed:
		return []string{fmt.Sprintf("See what failed with `muster rollouts targets %s --state failed,rolled_back`, put it back with `muster rollouts rollback %s --scope failed`.", id, id)}
	}
	return nil
}

// skippedShown is how many reasons a preview lists.
const skippedShown = 10

// previewBatchesShown fit a screen with what stands around them.
const previewBatchesShown = 20

// printRolloutPreview shows a preview; most agents are listed one by one.
func printRolloutPreview(w io.Writer, p adminapi.RolloutPreview, most int) {
	fmt.Fprintf(w, "%s would be upgraded in %s", counted(len(p.Targets), "agent"), batchCount(len(p.Batches)))
	if p.Offline > 0 {
		fmt.Fprintf(w, "; %d of them are away and upgrade when they return", p.Offline)
	}
	fmt.Fprintln(w, ".")
	if n := len(p.Skipped); n > 0 {
		fmt.Fprintf(w, "Selected, but left out: %s.\n", counted(n, "agent"))
	}
	fmt.Fprintf(w, "It takes at least %s; at the pace of past upgrades about %s.\n", durationWords(p.AtLeast), durationWords(p.Estimate))
	if len(p.Batches) > 0 {
		fmt.Fprintln(w)
		table(w, "BATCH\tKIND\tAGENTS\tAWAY\tBEGINS ABOUT\tENDS ABOUT\tFLEET AFTER", func(add func(...any)) {
			for _, b := range p.Batches[:min(len(p.Batches), previewBatchesShown)] {
				kind := string(b.Kind)
				if b.Ring > 0 {
					kind += fmt.Sprintf(" of ring %d", b.Ring)
				}
				add(b.Index+1, kind, b.Size, b.Offline, b.StartAt.Local().Format(time.DateTime), b.EndAt.Local().Format(time.DateTime), fmt.Sprintf("%.1f %%", 100*b.Share))
			}
		})
		if rest := len(p.Batches) - previewBatchesShown; rest > 0 {
			fmt.Fprintf(w, "… and %d more batches\n", rest)
		}
	}
	if c := p.Coverage; c != nil {
		fmt.Fprintf(w, "\nThe canaries stand for %d of %d kinds of host (%s): %.0f %% of the agents.\n", c.Covered, c.Cells, strings.Join(c.Over, ", "), 100*c.Agents)
		for _, cell := range c.Uncovered {
			fmt.Fprintf(w, "  none is %s (%s)\n", strings.Join(cell.Values, " "), counted(cell.Agents, "agent"))
		}
	}
	if e := p.Exposure; e != nil {
		fmt.Fprintf(w, "\nExposure: %s.\n", exposureWords(*e))
	}
	printSites(w, p.Sites)
	printSkipped(w, p.Skipped)
	if most > 0 {
		printAgents(w, p, most)
	}
	for _, text := range p.Warnings {
		fmt.Fprintf(w, "warning: %s\n", text)
	}
}

func batchCount(n int) string {
	if n == 1 {
		return "1 batch"
	}
	return fmt.Sprintf("%d batches", n)
}

func durationWords(text string) string {
	d, err := time.ParseDuration(text)
	if err != nil {
		return text
	}
	return roughly(d)
}

func printSites(w io.Writer, sites []adminapi.SiteBytes) {
	if len(sites) == 0 {
		return
	}
	fmt.Fprintln(w)
	table(w, "SITE\tAGENTS\tTO DOWNLOAD", func(add func(...any)) {
		for _, s := range sites {
			add(firstOf(s.Site, "-"), s.Agents, fmt.Sprintf("%.1f MB", float64(s.Bytes)/1e6))
		}
	})
}

// printSkipped shows the reasons, most frequent first, each with one host.
func printSkipped(w io.Writer, skipped []adminapi.SkippedAgent) {
	counts, first := map[string]int{}, map[string]adminapi.SkippedAgent{}
	for _, s := range skipped {
		if counts[s.Code]++; counts[s.Code] == 1 {
			first[s.Code] = s
		}
	}
	if len(counts) == 0 {
		return
	}
	fmt.Fprintln(w)
	table(w, "LEFT OUT\tBECAUSE\tSUCH AS", func(add func(...any)) {
		for i, code := range sortedCodes(counts) {
			if i == skippedShown {
				add("…", fmt.Sprintf("%d more reasons", len(counts)-skippedShown), "")
				break
			}
			add(counts[code], plain(code), first[code].Hostname+": "+first[code].Text)
		}
	})
}

func printAgents(w io.Writer, p adminapi.RolloutPreview, most int) {
	fmt.Fprintln(w)
	table(w, "HOST\tAGENT\tBATCH\tFROM\tTO\tREMARK", func(add func(...any)) {
		for _, t := range p.Targets[:min(most, len(p.Targets))] {
			remark := ""
			if !t.Online {
				remark = "is away"
			}
			add(t.Hostname, t.AgentId, t.Batch+1, t.From, t.To, remark)
		}
		for _, s := range p.Skipped[:min(most, len(p.Skipped))] {
			add(s.Hostname, s.AgentId, "-", s.Version, "-", s.Text)
		}
	})
}

// driftShown is how many agents of each kind of difference are listed.
const driftShown = 20

func printDrift(w io.Writer, d adminapi.Drift) {
	fmt.Fprintf(w, "The fleet has changed since the preview: %d more, %d fewer, %d others.\n", len(d.Added), len(d.Removed), len(d.Changed))
	for _, row := range []struct {
		mark  string
		items []adminapi.DriftItem
	}{{"+", d.Added}, {"-", d.Removed}, {"~", d.Changed}} {
		for _, i := range row.items[:min(len(row.items), driftShown)] {
			fmt.Fprintf(w, "  %s %s (%s): %s\n", row.mark, i.Hostname, i.AgentId, i.Text)
		}
		if rest := len(row.items) - driftShown; rest > 0 {
			fmt.Fprintf(w, "  %s … and %d more\n", row.mark, rest)
		}
	}
}

// sortedCodes are the keys of a count, most first.
func sortedCodes(counts map[string]int) []string {
	var out []string
	for code := range counts {
		out = append(out, code)
	}
	slices.SortFunc(out, func(a, b string) int {
		if counts[a] != counts[b] {
			return counts[b] - counts[a]
		}
		return strings.Compare(a, b)
	})
	return out
}
