package systemd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

func TestUnitOfAPackage(t *testing.T) {
	const current = "/opt/muster/components/web/current"
	for _, test := range []struct {
		what, text string
		canReload  bool
		links      string
		want       string // in the error
	}{
		{what: "one that is started by hand", text: "[Service]\nExecStart={{current}}/web --root {{current}}/www\n"},
		{
			what: "one that starts at boot", canReload: true, links: "multi-user.target.wants/web.service db.service.requires/web.service site.service",
			text: "[Service]\nExecStart={{current}}/web\nExecReload=kill -HUP $MAINPID\n[Install]\nWantedBy=multi-user.target\nRequiredBy=db.service\nAlias=site.service\n",
		},
		{what: "one that reloads by itself", canReload: true, text: "[Service]\nType=notify-reload\nExecStart=/usr/sbin/nginx\n"},
		{what: "a placeholder that does not exist", text: "[Service]\nExecStart={{home}}/web\n", want: `has "{{home}}/web", but only {{current}} has a meaning there`},
		{what: "no program", text: "[Unit]\nDescription=x\n", want: "has no ExecStart in [Service]"},
		{what: "no unit", text: "#!/bin/sh\nexit 1\n", want: "has no ExecStart"},
		{what: "other units", text: "[Service]\nExecStart=/bin/true\n[Install]\nAlso=web.socket\n", want: "a component is one unit"},
	} {
		d, err := parse([]byte(test.text), "web.service", current)
		if test.want != "" || err != nil {
			if err == nil || test.want == "" || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: %v, want %q in it", test.what, err, test.want)
			}
			continue
		}
		if d.canReload != test.canReload || strings.Join(d.links, " ") != test.links || string(d.text) != strings.ReplaceAll(test.text, "{{current}}", current) {
			t.Errorf("%s: it is %+v, %s", test.what, d, d.text)
		}
	}
}

func TestUnitFileIsBoundedAndItsFolderNeedsNoQuotes(t *testing.T) {
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, "big"), bytes.Repeat([]byte("#\n"), maxUnitBytes), 0o600); err != nil {
		t.Fatal(err)
	}
	a := New(Options{Disk: disk.OS{}})
	r := &runtime.Release{Name: "web", Dir: "/opt/muster/components/web", Home: home}
	if _, err := a.definition(r, settings{Unit: "web.service", UnitFile: "big"}); err == nil || !strings.Contains(err.Error(), "is larger than") {
		t.Errorf("a large file: %v", err)
	}
	for _, dir := range []string{"/opt/my agent/components/web", "/opt/100%/components/web", "/opt/$HOME/web", `/opt/"/web`, "/opt/a;b/web"} {
		r.Dir = dir
		if _, err := a.definition(r, settings{Unit: "web.service", UnitFile: "big"}); err == nil || !strings.Contains(err.Error(), "install the agent in another folder") {
			t.Errorf("in %s: %v", dir, err)
		}
	}
}

func TestStatusOfAUnit(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	for _, test := range []struct {
		what           string
		state          state
		running, ready bool
		message        string
	}{
		{"one that runs", state{load: "loaded", active: "active", sub: "running", pid: 7, started: at}, true, true, ""},
		{"one that reloads", state{load: "loaded", active: "reloading", sub: "reload", pid: 7, started: at}, true, true, ""},
		{"one that is not ready yet", state{load: "loaded", active: "activating", sub: "start", pid: 7, started: at}, true, false, "it is activating (start)"},
		{"one that stops", state{load: "loaded", active: "deactivating", sub: "stop-sigterm", pid: 7, started: at}, true, false, "it is deactivating (stop-sigterm)"},
		{
			"one that waits for its restart",
			state{load: "loaded", active: "activating", sub: "auto-restart", result: "exit-code", exitCode: exited, exitStatus: 3, started: at},
			false, false, "it has ended, and systemd will start it again: exit-code, exit status 3",
		},
		{"one that waits for its restart, as later versions say", state{load: "loaded", active: "activating", sub: "auto-restart-queued", result: "signal", exitCode: killed, exitStatus: 9}, false, false, "it has ended, and systemd will start it again: signal, signal 9"},
		{"one that systemd gave up", state{load: "loaded", active: "failed", sub: "failed", result: "start-limit-hit"}, false, false, "it has failed: it was started too often (start-limit-hit)"},
		{"one that was stopped", state{load: "loaded", active: "inactive", sub: "dead"}, false, false, "it is stopped"},
		{"one that has ended", state{load: "loaded", active: "inactive", sub: "dead", result: "success", exitCode: exited, started: at}, false, false, "it has ended: success, exit status 0"},
		{"one that the host lacks", state{load: "not-found", active: "inactive", sub: "dead"}, false, false, "the unit does not exist"},
		{"one that is masked", state{load: "masked", active: "inactive", sub: "dead"}, false, false, "the unit is masked"},
		{"one with an error", state{load: "bad-setting", loadError: "no ExecStart", active: "inactive"}, false, false, "systemd cannot load the unit (bad-setting): no ExecStart"},
		{"one whose file was removed", state{load: "not-found", active: "active", sub: "running", pid: 7, started: at}, true, true, ""},
	} {
		got := test.state.status()
		want := runtime.Status{Running: test.running, Waits: strings.Contains(test.what, "restart"), Ready: test.ready, Message: test.message}
		want.Stopped = slices.Contains([]string{"one that was stopped", "one that has ended", "one that is masked"}, test.what)
		if test.running {
			want.PID, want.Since = 7, at
		}
		if _, ended, ok := strings.Cut(test.message, "systemd will start it again: "); ok {
			want.Ended = ended
		}
		if got != want {
			t.Errorf("%s: %+v, want %+v", test.what, got, want)
		}
	}
}

// fakeManager answers with one state after the other, the last one again and again.
type fakeManager struct {
	manager
	states []state
	err    error
	result string
	jobs   []string
}

func (m *fakeManager) show(context.Context, string) (state, error) {
	s := m.states[0]
	m.states = m.states[min(1, len(m.states)-1):]
	return s, nil
}

func (m *fakeManager) job(_ context.Context, verb, unit string) (string, error) {
	m.jobs = append(m.jobs, verb+" "+unit)
	return m.result, m.err
}

func (m *fakeManager) resetFailed(context.Context, string) error { return errors.New("not loaded") }
func (m *fakeManager) close()                                    {}

func TestWhatIsAskedOfSystemd(t *testing.T) {
	runs := state{load: "loaded", active: "active", sub: "running"}
	stopped := state{load: "loaded", active: "inactive", sub: "dead"}
	queued := stopped
	queued.job = true
	waits := state{load: "loaded", active: "activating", sub: "auto-restart"}
	start, stop, reload := (*Adapter).Start, (*Adapter).Stop, (*Adapter).Reload
	for _, test := range []struct {
		what   string
		call   func(*Adapter, context.Context, *runtime.Release) error
		states []state
		result string
		err    error
		jobs   string
		want   string // in the error
	}{
		{what: "start of one that runs", call: start, states: []state{runs}},
		{what: "start", call: start, states: []state{stopped, runs}, result: done, jobs: "start web.service"},
		{what: "start of one that waits for its restart", call: start, states: []state{waits, runs}, result: done, jobs: "start web.service"},
		{what: "start that is replaced by a stop", call: start, states: []state{stopped}, result: "canceled", jobs: "start web.service", want: "its job has the result canceled; it is stopped"},
		{what: "start whose connection breaks", call: start, states: []state{stopped}, err: fmt.Errorf("%w: it broke", runtime.ErrTransient), jobs: "start web.service", want: "may succeed later: it broke"},
		{what: "stop of one that is stopped", call: stop, states: []state{stopped}},
		{what: "stop of one that is about to start", call: stop, states: []state{queued, stopped}, result: done, jobs: "stop web.service"},
		{what: "stop of one that waits for its restart", call: stop, states: []state{waits, stopped}, result: done, jobs: "stop web.service"},
		{what: "stop of one that something starts again", call: stop, states: []state{runs, runs}, result: done, jobs: "stop web.service", want: "it is active (running) after its stop"},
		{what: "reload of one that cannot", call: reload, states: []state{runs}, want: "it has no ExecReload: add it to the unit, or remove reload from the manifest"},
	} {
		m := &fakeManager{states: test.states, result: test.result, err: test.err}
		a := New(Options{Disk: disk.OS{}})
		a.connect = func(context.Context) (manager, error) { return m, nil }
		a.journal = func(context.Context, *tail, ...string) error { return errors.New("no journal") }
		r := &runtime.Release{Name: "web", Component: manifest.Component{Settings: map[string]any{"unit": "web.service"}}}
		err := test.call(a, t.Context(), r)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q in it", test.what, err, test.want)
		}
		if test.err != nil && !errors.Is(err, test.err) {
			t.Errorf("%s: %v does not wrap %v", test.what, err, test.err)
		}
		if got := strings.Join(m.jobs, ", "); got != test.jobs {
			t.Errorf("%s: jobs are %q, want %q", test.what, got, test.jobs)
		}
	}
}

func TestLogsAreBounded(t *testing.T) {
	a := New(Options{Disk: disk.OS{}})
	a.connect = func(context.Context) (manager, error) { return nil, errors.New("no systemd") }
	var asked []string
	a.journal = func(_ context.Context, out *tail, args ...string) error {
		asked = args
		for i := range 40 {
			fmt.Fprintf(out, "line %d %s\n", i, strings.Repeat("x", maxLogBytes/10))
		}
		return nil
	}
	r := &runtime.Release{Name: "web", Component: manifest.Component{Settings: map[string]any{"unit": "web.service"}}}
	lines, err := a.Logs(t.Context(), r, 1_000_000_000)
	if err != nil || len(lines) > 11 || !strings.HasPrefix(lines[len(lines)-1], "line 39 ") {
		t.Errorf("%d lines, %v, want the last that fit", len(lines), err)
	}
	if got := strings.Join(asked, " "); !strings.Contains(got, fmt.Sprintf("--lines=%d ", maxLogLines)) {
		t.Errorf("asked the journal with %s", got)
	}
	if lines, err = a.Logs(t.Context(), r, 2); err != nil || len(lines) != 2 {
		t.Errorf("of an entry with several lines: %d lines, %v", len(lines), err)
	}
	if err := a.explain(t.Context(), "web.service", errors.New("failed")); len(err.Error()) > 2*explainLines*maxExplained || !strings.Contains(err.Error(), "line 39 ") {
		t.Errorf("an error has %d bytes: %.200s", len(err.Error()), err)
	}
}
