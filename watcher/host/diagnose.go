package host

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"strings"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
	"github.com/muster-fleet/muster/watcher/watch"
)

const (
	// diagnoseTimeout bounds each program that Diagnose runs. A rollback waits for it.
	diagnoseTimeout = 3 * time.Second
	// maxOutput bounds what is read of the output, in bytes. The end of a stack trace is of no use, so
	// it is enough to hold one from its beginning.
	maxOutput = 32 << 10
	// outputLines is how many lines are quoted.
	outputLines = 3
)

// Diagnose implements watch.Host.
func (h *Host) Diagnose(ctx context.Context, home string) watch.Diagnosis {
	d := watch.Diagnosis{Output: lastOutput(h.agentLog())}
	if d.Output == "" && h.Service != "" {
		d.Output = lastOutput(journal(ctx, h.Service, h.watchedSince()))
	}
	if err := disk.CheckWritable(disk.OS{}, "diagnosis", layout.Path(h.Top, layout.WriteCheckFile)); err != nil {
		d.Own = &handoff.Reason{Code: handoff.ReasonUnwritable, Text: fmt.Sprintf("The host cannot write to its disk: %v.", err)}
		return d
	}
	ctx, cancel := context.WithTimeout(ctx, diagnoseTimeout)
	defer cancel()
	program := layout.Path(h.Top, path.Join(home, layout.AgentLink))
	if err := probe.CheckStart(ctx, program, h.Top); err != nil {
		d.Own = &handoff.Reason{Code: handoff.ReasonSettings, Text: fmt.Sprintf("The settings of the host are not valid: %v.", err)}
	}
	return d
}

// begin remembers when the watch began, and how long the log was. The caller holds mu.
func (h *Host) begin() {
	if !h.since.IsZero() {
		return
	}
	h.since = time.Now()
	if fi, err := os.Stat(layout.Path(h.Top, layout.AgentLogFile)); err == nil {
		h.logFrom = fi.Size()
	}
}

func (h *Host) watchedSince() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.since
}

// agentLog returns what was appended to the agent's log since the watch began. It is its output too if
// no service manager runs it.
func (h *Host) agentLog() string {
	h.mu.Lock()
	from := h.logFrom
	h.mu.Unlock()
	f, err := os.Open(layout.Path(h.Top, layout.AgentLogFile))
	if err != nil {
		return ""
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return ""
	}
	if size < from { // it was rotated
		from = 0
	}
	if _, err := f.Seek(max(from, size-maxOutput), io.SeekStart); err != nil {
		return ""
	}
	b, _ := io.ReadAll(io.LimitReader(f, maxOutput)) // what could be read is better than nothing
	return string(b)
}

// journal returns what systemd has recorded of a service, or "" without systemd.
func journal(ctx context.Context, service string, since time.Time) string {
	program, err := exec.LookPath("journalctl")
	if err != nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, diagnoseTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "--unit", service+".service", "--output", "cat", "--no-pager", "--quiet",
		"--lines", "50", "--since", fmt.Sprintf("@%d", since.Unix()))
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	return string(out)
}

// lastOutput returns the lines of an output that say why its process ended: from a panic on, or the
// last ones. Lines of the agent's log that are no warnings are left out: an agent logs them while it is
// well, and the last one may be of the version before.
func lastOutput(text string) string {
	var lines []string
	panicked := -1
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.Contains(line, " level=INFO ") || strings.Contains(line, " level=DEBUG ") {
			continue
		}
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			panicked = len(lines)
		}
		lines = append(lines, line)
	}
	if panicked >= 0 {
		return strings.Join(lines[panicked:min(len(lines), panicked+outputLines)], "\n")
	}
	return strings.Join(lines[max(0, len(lines)-outputLines):], "\n")
}
