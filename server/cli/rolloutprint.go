package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
)

// targetVersion describes the version that a rollout moves its agents, or a component, to.
func targetVersion(r adminapi.Rollout) string {
	version := r.Plan.Version
	if r.RollbackOf != "" {
		version = cmp.Or(version, "their last healthy versions")
	}
	return strings.TrimSpace(r.Plan.Component + " " + version)
}

// nameAndID returns the name of a rollout with its id, or the id alone.
func nameAndID(r adminapi.Rollout) string {
	if r.Plan.Name == "" {
		return r.ID
	}
	return fmt.Sprintf("%q (%s)", r.Plan.Name, r.ID)
}

func failures(c adminapi.Counts) int { return c.Failed + c.RolledBack }

func inFlight(c adminapi.Counts) int { return c.Offered + c.Upgrading + c.Verifying }

// waitsFor returns the first reason why a rollout waits, or what paused it.
func waitsFor(r adminapi.Rollout, now time.Time) string {
	waiting := r.Waiting
	switch {
	case r.State == fleet.RolloutPaused && r.Stop != nil:
		return spaced(string(r.Stop.Kind))
	case len(waiting) == 0:
		return "-"
	}
	words := spaced(string(waiting[0].Code))
	if waiting[0].Code == fleet.WhyBatch {
		words = waiting[0].Text // agents of a batch, which may be the last one
	}
	return words + timeLeft(waiting[0], now)
}

// timeLeft formats when a wait ends, with a comma before it.
func timeLeft(w adminapi.Wait, now time.Time) string {
	if w.Until == nil {
		return ""
	}
	if d := w.Until.Sub(now); d > 0 {
		return ", " + formatDuration(d)
	}
	return ", now"
}

// formatDuration rounds d to at most two units.
func formatDuration(d time.Duration) string {
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

// progressLine describes a rollout in one line.
func progressLine(r adminapi.Rollout) string {
	c := r.Counts
	words := []string{string(r.State)}
	if l := r.Lockstep; l != nil && !r.State.Ended() {
		words = append(words, "phase "+spaced(string(l.Phase)))
	}
	if batches := r.Batches; len(batches) > 1 {
		words = append(words, fmt.Sprintf("batch %d of %d", current(batches)+1, len(batches)))
	}
	words = append(words, fmt.Sprintf("%d of %d done", c.Succeeded, c.Total))
	words = append(words, counts{{inFlight(c), "in flight"}, {c.Held, "offline"}, {failures(c), "failed"}, {c.Withdrawn, "withdrawn"}, {c.Refused, "refused"}, {c.Skipped - c.Refused, "skipped"}, {c.Expired, "expired"}, {c.Cancelled, "cancelled"}}.words()...)
	line := strings.Join(words, ", ")
	if r.Stop != nil && r.State == fleet.RolloutPaused {
		return line + ": " + r.Stop.Text
	}
	if waiting := r.Waiting; len(waiting) > 0 {
		line += "; waiting: " + waiting[0].Text
		if waiting[0].Until != nil {
			line += " (until " + atTime(*waiting[0].Until) + ")"
		}
	}
	return line
}

// current returns the index of the last batch that has started.
func current(batches []adminapi.Batch) int {
	at := 0
	for i, b := range batches {
		if b.StartedAt != nil {
			at = i
		}
	}
	return at
}

// printRollout prints one rollout. It shows at most maxBatches batches around the current
// one, or all if maxBatches is negative.
func printRollout(w io.Writer, r adminapi.Rollout, now time.Time, maxBatches int) {
	fmt.Fprintf(w, "%s  %s\n", r.Plan.Name, r.ID)
	about := details{w, 14}
	about.row("state", string(r.State))
	if r.Fleet != "" {
		about.row("fleet", r.Fleet+", which declares it")
	}
	about.row("version", cmp.Or(targetVersion(r), "-"))
	about.row("strategy", spaced(string(r.Plan.Strategy.Kind)))
	if defaults := r.Plan.ServerDefaults; len(defaults) > 0 {
		about.rowf("defaults", "%s: as the server's configuration says", strings.Join(defaults, ", "))
	}
	about.times(r.CreatedAt, r.CreatedBy, r.StartedAt, r.StartedBy, r.EndedAt, now)
	if r.RollbackOf != "" {
		about.row("rolls back", "rollout "+r.RollbackOf)
	}
	if r.RolledBackBy != "" {
		about.row("rolled back by", "rollout "+r.RolledBackBy)
	}
	about.row("agents", describeCounts(r.Counts))
	if stop := r.Stop; stop != nil && r.State == fleet.RolloutPaused {
		about.rowf("paused", "%s (%s, %s)", stop.Text, stop.By, ago(&stop.At, now))
		if stop.Withdrawn > 0 {
			about.rowf("", "%s withdrawn", counted(stop.Withdrawn, "offer"))
		}
	}
	if p := r.Promoted; p != nil {
		about.row("promoted", strings.TrimSuffix(fmt.Sprintf("%s by %s: %s", ago(&p.At, now), p.By, p.Why), ": "))
	}
	if r.PauseAsked != nil && r.State == fleet.RolloutRunning {
		about.rowf("pauses", "when this batch has ended, requested by %s", r.PauseAsked.By)
	}
	if st := r.Staging; st != nil {
		text := fmt.Sprintf("%d of %d have answered", st.Answered, st.Targets)
		if st.EndedAt != nil {
			text += ", ended " + ago(st.EndedAt, now)
		}
		about.row("staging", text)
	}
	printLockstep(about, r, now)
	for _, wait := range r.Waiting {
		about.row("waiting", wait.Text+timeLeft(wait, now))
	}
	if e := r.Exposure; e != nil {
		about.row("exposure", describeExposure(*e))
	}
	if failures(r.Counts) > 0 || r.State == fleet.RolloutPaused {
		about.option("recovery", r.Plan.Migration.RecoveryPlan)
	}
	printBatches(w, r.Batches, maxBatches)
	if next := nextStep(r); next != "" {
		fmt.Fprintln(w, next)
	}
}

// times prints who created and started something and when, and when it ended.
func (d details) times(created time.Time, createdBy string, started *time.Time, startedBy string, ended *time.Time, now time.Time) {
	d.rowf("created", "%s by %s", ago(&created, now), createdBy)
	if started != nil {
		d.rowf("started", "%s by %s", ago(started, now), startedBy)
	}
	if ended != nil {
		d.row("ended", ago(ended, now))
	}
}

// printLockstep prints how far a rollout in lockstep is.
func printLockstep(about details, r adminapi.Rollout, now time.Time) {
	l := r.Lockstep
	if l == nil {
		return
	}
	about.rowf("phase", "%s, since %s", spaced(string(l.Phase)), ago(&l.Since, now))
	switch {
	case l.CommittedAt != nil:
		about.rowf("", "it goes through to its end; there has been no way back since %s", ago(l.CommittedAt, now))
	case l.Undo != nil:
		about.rowf("undone", "in the phase %s: %s", spaced(string(l.Undo.In)), l.Undo.Why)
	}
	if missing := l.Missing; len(missing) > 0 {
		about.row("left out", "offline: "+strings.Join(missing, ", "))
	}
	about.option("look at", strings.Join(l.Failed, ", "))
}

func describeCounts(c adminapi.Counts) string {
	words := counts{
		{c.Offered, "offered"},
		{c.Upgrading, "upgrading"},
		{c.Verifying, "verifying"},
		{c.Failed, "failed"},
		{c.RolledBack, "rolled back"},
		{c.Pending, "pending"},
		{c.Held, "offline"},
		{c.Withdrawn, "withdrawn"},
		{c.Refused, "refused"},
		{c.Skipped - c.Refused, "skipped"},
		{c.Expired, "expired"},
		{c.Cancelled, "cancelled"},
	}.words()
	return strings.Join(append([]string{fmt.Sprintf("%d of %d done", c.Succeeded, c.Total)}, words...), ", ")
}

// counts are numbers of agents by what they are.
type counts []struct {
	n    int
	what string
}

// words names those that are not zero.
func (c counts) words() (words []string) {
	for _, one := range c {
		if one.n > 0 {
			words = append(words, fmt.Sprintf("%d %s", one.n, one.what))
		}
	}
	return words
}

func describeExposure(e adminapi.Exposure) string {
	words := fmt.Sprintf("%d of %s run %s or were offered it; at most %d may until it has %.0f healthy agent-hours (%.1f so far)",
		e.Exposed, counted(e.Fleet, "agent"), e.Version, e.Limit, e.NeededHours, e.HealthyHours)
	if t := e.Tightest; t != nil {
		words += fmt.Sprintf("; of %s %s %d of %d", t.Label, t.Value, t.Exposed, t.Limit)
	}
	return words
}

func printBatches(w io.Writer, batches []adminapi.Batch, maxBatches int) {
	if len(batches) == 0 {
		return
	}
	from, to := 0, len(batches)
	if maxBatches >= 0 && len(batches) > maxBatches {
		from = max(0, min(current(batches)-maxBatches/2, len(batches)-maxBatches))
		to = from + maxBatches
	}
	tableOf(w, "BATCH\tKIND\tAGENTS\tDONE\tIN FLIGHT\tOFFLINE\tFAILED\tSTATE", batches[from:to], func(b adminapi.Batch) []any {
		return []any{b.Index + 1, batchKind(b.Kind, b.Ring), b.Counts.Total, b.Counts.Succeeded, inFlight(b.Counts), b.Counts.Held, failures(b.Counts), batchState(b)}
	})
	if rest := len(batches) - (to - from); rest > 0 {
		fmt.Fprintf(w, "… and %d more batches\n", rest)
	}
}

func batchKind(kind fleet.BatchKind, ring int) string {
	if ring > 0 {
		return fmt.Sprintf("%s of ring %d", kind, ring)
	}
	return string(kind)
}

func batchState(b adminapi.Batch) string {
	switch {
	case b.StartedAt == nil:
		return "not started"
	case b.EndedAt == nil:
		return "under way"
	case b.ClearedAt == nil:
		return "verifying"
	}
	return "done"
}

// rollbackAdvice says what a stopped rollout has left to roll back. On hosts whose
// watchers have put the previous version back there is nothing.
func rollbackAdvice(r adminapi.Rollout) string {
	if r.Plan.Strategy.Kind == fleet.LockstepStrategy {
		return lockstepAdvice(r)
	}
	c, watchers, all := r.Counts, "", ""
	if n := c.RolledBack; n > 0 {
		watchers = fmt.Sprintf("Watchers put the previous version back on %d: there is nothing to roll back on them.", n)
	}
	if n := c.Succeeded + inFlight(c); n > 0 {
		all = advise(r.Commands, "rollback_all", fmt.Sprintf("Roll back all %d that took the version with `muster rollouts rollback %%s`.", n+c.Failed), r.ID+" --scope all")
	}
	return sentences(watchers,
		advise(r.Commands, "rollback_failed", fmt.Sprintf("Roll back the %d that failed with `muster rollouts rollback %%s`.", c.Failed), r.ID+" --scope failed"),
		all)
}

// lockstepAdvice is rollbackAdvice of a rollout in lockstep, which has no rollback.
func lockstepAdvice(r adminapi.Rollout) string {
	l := r.Lockstep
	switch {
	case l == nil || l.Phase == fleet.LockstepVerify:
		return "It verifies its targets again then; none of them has begun."
	case l.CommittedAt != nil:
		return "Components that failed are stopped, or run unwell: mend those hosts. To go back, make a rollout in lockstep to the earlier version."
	}
	return "Everything was undone: mend what it names, then make another rollout."
}

// resumeAdvice says how a paused rollout goes on or, if it cannot, how it ends.
func resumeAdvice(r adminapi.Rollout, flags string) string {
	cancel := ""
	if possible(r.Commands, "cancel").Primary {
		cancel = advise(r.Commands, "cancel", "Cancel it with `muster rollouts cancel %s`.", r.ID)
	}
	return sentences(advise(r.Commands, "resume", "Resume it with `muster rollouts resume %s`.", r.ID+flags), cancel)
}

// nextStep says what an operator does next; empty: nothing.
func nextStep(r adminapi.Rollout) string {
	switch r.State {
	case fleet.RolloutPaused:
		return sentences(resumeAdvice(r, ""), rollbackAdvice(r))
	case fleet.RolloutFailed:
		return sentences(fmt.Sprintf("List the failed agents with `muster rollouts targets %s --state failed,rolled_back`.", r.ID), rollbackAdvice(r))
	}
	return sentences(
		advise(r.Commands, "start", "Start it with `muster rollouts start %s`.", r.ID),
		advise(r.Commands, "approve", "Approve it with `muster rollouts approve %s`.", r.ID))
}

// skippedShown is how many reasons a preview lists.
const skippedShown = 10

// previewBatchesShown is how many batches a preview lists: they fit a screen with the
// rest of it.
const previewBatchesShown = 20

// printRolloutPreview prints a preview, with at most maxAgents of the agents and as many
// of those left out.
func printRolloutPreview(w io.Writer, p adminapi.RolloutPreview, maxAgents int) {
	fmt.Fprintf(w, "%s would be upgraded in %s", counted(len(p.Targets), "agent"), countedAs(len(p.Batches), "batch", "batches"))
	if p.Offline > 0 {
		fmt.Fprintf(w, "; %d of them are offline and upgrade when they return", p.Offline)
	}
	fmt.Fprintln(w, ".")
	if n := len(p.Skipped); n > 0 {
		fmt.Fprintf(w, "Selected, but left out: %s.\n", counted(n, "agent"))
	}
	if st := p.Staging; st != nil && st.Load > 0 {
		fmt.Fprintf(w, "First the version is staged on %s, in about %s (%d have it); then they switch to it.\n", counted(st.Load, "agent"), formatDuration(st.Estimate.D()), st.Staged)
	}
	fmt.Fprintf(w, "It takes at least %s; at the pace of past upgrades about %s.\n", formatDuration(p.AtLeast.D()), formatDuration(p.Estimate.D()))
	if defaults := p.ServerDefaults; len(defaults) > 0 {
		fmt.Fprintf(w, "By the server's configuration: %s.\n", strings.Join(defaults, ", "))
	}
	if p.Component != "" {
		fmt.Fprintln(w, "Hosts observe the component, for a minute unless their policy says otherwise, and then report the new version.")
		if slices.ContainsFunc(p.Targets, func(t adminapi.PreviewTarget) bool { return t.Config != "" }) {
			fmt.Fprintln(w, "The server renders configuration files for them: `muster rollouts preview ROLLOUT --configs` shows what a draft changes.")
		}
	} else {
		fmt.Fprintln(w, watchText)
	}
	if len(p.Batches) > 0 {
		fmt.Fprintln(w)
		tableOf(w, "BATCH\tKIND\tAGENTS\tOFFLINE\tSTARTS ABOUT\tENDS ABOUT\tFLEET AFTER", p.Batches[:min(len(p.Batches), previewBatchesShown)], func(b adminapi.PreviewBatch) []any {
			return []any{b.Index + 1, batchKind(b.Kind, b.Ring), b.Size, b.Offline, atTime(b.StartAt), atTime(b.EndAt), fmt.Sprintf("%.1f %%", 100*b.Share)}
		})
		if rest := len(p.Batches) - previewBatchesShown; rest > 0 {
			fmt.Fprintf(w, "… and %d more batches\n", rest)
		}
	}
	if c := p.Coverage; c != nil {
		fmt.Fprintf(w, "\nThe canaries cover %d of %d combinations of %s, with %.0f %% of the agents.\n", c.Covered, c.Cells, strings.Join(c.Over, ", "), 100*c.Agents)
		for _, cell := range c.Uncovered {
			fmt.Fprintf(w, "  not covered: %s (%s)\n", strings.Join(cell.Values, " "), counted(cell.Agents, "agent"))
		}
	}
	if e := p.Exposure; e != nil {
		fmt.Fprintf(w, "\nExposure: %s.\n", describeExposure(*e))
	}
	printSites(w, p.Sites)
	printSkipped(w, p.Skipped)
	if maxAgents > 0 {
		printAgents(w, p, maxAgents)
	}
	for _, text := range p.Warnings {
		fmt.Fprintf(w, "warning: %s\n", text)
	}
	for _, refused := range p.Refusals {
		fmt.Fprintf(w, "a start would be refused: %s\n", refused.Text)
	}
}

func printSites(w io.Writer, sites []adminapi.SiteBytes) {
	if len(sites) == 0 {
		return
	}
	fmt.Fprintln(w)
	tableOf(w, "SITE\tAGENTS\tTO DOWNLOAD", sites, func(s adminapi.SiteBytes) []any {
		return []any{cmp.Or(s.Site, "-"), s.Agents, fmt.Sprintf("%.1f MB", float64(s.Bytes)/1e6)}
	})
}

// printSkipped prints the reasons, most frequent first, each with one host.
func printSkipped(w io.Writer, skipped []adminapi.SkippedAgent) {
	counts, first := map[string]int{}, map[string]adminapi.SkippedAgent{}
	for _, s := range skipped {
		code := string(s.Code)
		if counts[code]++; counts[code] == 1 {
			first[code] = s
		}
	}
	if len(counts) == 0 {
		return
	}
	fmt.Fprintln(w)
	table(w, "LEFT OUT\tREASON\tEXAMPLE", func(add func(...any)) {
		for i, code := range sortedCodes(counts) {
			if i == skippedShown {
				add("…", fmt.Sprintf("%d more reasons", len(counts)-skippedShown), "")
				break
			}
			add(counts[code], spaced(code), first[code].Hostname+": "+first[code].Text)
		}
	})
}

func printAgents(w io.Writer, p adminapi.RolloutPreview, maxAgents int) {
	fmt.Fprintln(w)
	table(w, "HOST\tAGENT\tBATCH\tFROM\tTO\tREMARK", func(add func(...any)) {
		for _, t := range p.Targets[:min(maxAgents, len(p.Targets))] {
			remark := ""
			if !t.Online {
				remark = "offline"
			}
			add(t.Hostname, t.AgentID, t.Batch+1, cmp.Or(t.From, "none"), t.To, remark)
		}
		for _, s := range p.Skipped[:min(maxAgents, len(p.Skipped))] {
			add(s.Hostname, s.AgentID, "-", cmp.Or(s.Version, "none"), "-", s.Text)
		}
	})
}

// driftShown is how many agents of each kind of difference are listed.
const driftShown = 20

func printDrift(w io.Writer, d adminapi.Drift) {
	fmt.Fprintf(w, "The fleet has changed since the preview: %s added, %d removed, %d changed.\n", counted(len(d.Added), "agent"), len(d.Removed), len(d.Changed))
	for _, row := range []struct {
		mark  string
		items []adminapi.DriftItem
	}{{"+", d.Added}, {"-", d.Removed}, {"~", d.Changed}} {
		for _, i := range row.items[:min(len(row.items), driftShown)] {
			fmt.Fprintf(w, "  %s %s (%s): %s\n", row.mark, i.Hostname, i.AgentID, i.Text)
		}
		if rest := len(row.items) - driftShown; rest > 0 {
			fmt.Fprintf(w, "  %s … and %d more\n", row.mark, rest)
		}
	}
}

// sortedCodes returns the keys of counts, the most frequent first.
func sortedCodes(counts map[string]int) []string {
	return slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b))
	})
}
