//go:build linux

package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/watcher/handoff"
)

func TestLastOutputSaysWhyAProcessEnded(t *testing.T) {
	const info = "time=2026-03-03T10:00:00Z level=INFO msg=\"agent restarts as another version\"\n"
	for name, row := range map[string]struct{ text, want string }{
		"nothing":                      {"", ""},
		"an agent that was well":       {info + info, ""},
		"an error":                     {info + "muster-agent: identity: record is damaged\n", "muster-agent: identity: record is damaged"},
		"the end of many lines":        {"1\n2\n\n3\n4\n", "2\n3\n4"},
		"a panic with its stack":       {"warn\npanic: oops\n\ngoroutine 1 [running]:\nmain.main()\n\t/src/main.go:8\n", "panic: oops\ngoroutine 1 [running]:\nmain.main()"},
		"the last of several panics":   {"panic: one\nstack\nfatal error: two\n", "fatal error: two"},
		"a line that is not ended yet": {info + "Killed", "Killed"},
	} {
		if got := lastOutput(row.text); got != row.want {
			t.Errorf("%s: %q, want %q", name, got, row.want)
		}
	}
}

// The programs are scripts: one that would not start, one that would, and one of Elastic's.
func TestDiagnosisNamesTheHostsOwnReason(t *testing.T) {
	for _, row := range []struct {
		name, script string
		code         handoff.ReasonCode
		says         string
	}{
		{"settings that are not valid", "echo /opt/muster/agent.yml: line 3: key x is not known; exit 78", handoff.ReasonSettings, "agent.yml: line 3"},
		{"a program that would start", "exit 0", "", ""},
		{"a program that does not know the question", "echo unknown command >&2; exit 1", "", ""},
		{"no program", "", "", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			top := t.TempDir()
			must(t, os.MkdirAll(filepath.Join(top, home), 0o700))
			if row.script != "" {
				text := "#!/bin/sh\n[ \"$1 $2 $3\" = \"check-start --top " + top + "\" ] || exit 9\n" + row.script + "\n"
				must(t, os.WriteFile(filepath.Join(top, home, layout.AgentLink), []byte(text), 0o700))
			}
			log := layout.Path(top, layout.AgentLogFile)
			must(t, os.WriteFile(log, []byte("before the watch\n"), 0o600))
			h := &Host{Top: top}
			h.Agent()
			f, err := os.OpenFile(log, os.O_WRONLY|os.O_APPEND, 0)
			must(t, err)
			_, err = f.WriteString("panic: oops\n")
			must(t, err)
			must(t, f.Close())
			d := h.Diagnose(t.Context(), home)
			if d.Output != "panic: oops" {
				t.Errorf("output %q", d.Output)
			}
			if (d.Own != nil) != (row.code != "") || d.Own != nil && (d.Own.Code != row.code || !strings.Contains(d.Own.Text, row.says)) {
				t.Errorf("the host's own reason is %+v, want %s", d.Own, row.code)
			}
			if _, err := os.Lstat(layout.Path(top, layout.WriteCheckFile)); err == nil {
				t.Error("the file of the check is left")
			}
		})
	}
}
