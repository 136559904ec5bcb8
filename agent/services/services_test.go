package services

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/testing/kit/require"
)

func TestUnitsQuoteTheTopFolder(t *testing.T) {
	const top = "/srv/100% my $HOME"
	agent, watcher := AgentSystemd(layout.Roots{Top: top}), WatcherSystemd(layout.Roots{Top: top})
	for unit, lines := range map[string][]string{
		agent: {
			`ExecStart="/srv/100%% my $HOME/muster-agent" run --top "/srv/100%% my $$HOME"`,
			`RequiresMountsFor="/srv/100%% my $HOME"`,
			"KillMode=process", "Restart=always", "StartLimitIntervalSec=0",
			`ReadWritePaths="/srv/100%% my $HOME"`, "ProtectSystem=strict", "NoNewPrivileges=yes", "ProtectKernelModules=yes",
		},
		watcher: {
			`ExecStart="/srv/100%% my $HOME/muster-watcher" --top "/srv/100%% my $$HOME"`,
			// Here systemd reads the rest of the line as the path, with any quotes.
			"ConditionPathExists=/srv/100%% my $HOME/data/upgrade-marker",
			"Type=notify", "NotifyAccess=main", "Restart=on-failure", "StartLimitIntervalSec=0", "WantedBy=multi-user.target",
			`ReadWritePaths="/srv/100%% my $HOME"`, "ProtectSystem=strict", "ProtectKernelModules=yes",
		},
	} {
		for _, line := range lines {
			if !strings.Contains(unit, "\n"+line+"\n") {
				t.Errorf("no line %q in\n%s", line, unit)
			}
		}
	}
	for _, tie := range []string{"After=muster", "Before=", "Requires=", "PartOf=", "BindsTo=", "Conflicts=", "KillMode="} {
		if strings.Contains(watcher, tie) {
			t.Errorf("the watcher's unit is tied to something by %s:\n%s", tie, watcher)
		}
	}
}

// Exposure is 0 to 10, of which up to 3.0 is what the watcher may have. The agent runs the programs
// of its components as root, and so is above.
func TestUnitsAreExposedNoMoreThanTheirWorkDemands(t *testing.T) {
	analyze := require.Program(t, "systemd-analyze")
	r := layout.Roots{Top: "/opt/muster"}
	for name, unit := range map[string]struct{ text, tenths string }{
		"muster-agent-watcher.service": {WatcherSystemd(r), "30"},
		"muster-agent.service":         {AgentSystemd(r), "36"},
	} {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(unit.text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), analyze, "security", "--offline=true", "--no-pager", "--threshold="+unit.tenths, file).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v, want at most %s tenths:\n%s", name, err, unit.tenths, out)
			continue
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		t.Log(lines[len(lines)-1])
	}
}

func TestUnitsGoThroughThePointerOfASystem(t *testing.T) {
	r := layout.System{Prefix: "/usr", SysConfDir: "/etc", LocalStateDir: "/var"}.Roots()
	const both = `"/var/lib/muster-agent" "/etc/muster-agent"`
	for unit, program := range map[string]string{
		AgentSystemd(r):   `ExecStart="/etc/muster-agent/muster-agent" run --top "/var/lib/muster-agent"`,
		WatcherSystemd(r): `ExecStart="/etc/muster-agent/muster-watcher" --top "/var/lib/muster-agent"`,
	} {
		for _, line := range []string{program, "ReadWritePaths=" + both, "RequiresMountsFor=" + both} {
			if !strings.Contains(unit, "\n"+line+"\n") {
				t.Errorf("no line %q in\n%s", line, unit)
			}
		}
	}
	for name, definition := range map[string]string{
		"launchd": WatcherLaunchd("w", r), "upstart": WatcherUpstart(r), "OpenRC": WatcherOpenRC(r), "System V": WatcherSysV("w", r),
	} {
		if !strings.Contains(definition, "/etc/muster-agent/muster-watcher") || !strings.Contains(definition, "/var/lib/muster-agent") {
			t.Errorf("%s does not go through the pointer:\n%s", name, definition)
		}
	}
}

func TestCheckFolderRefusesNamesThatServicesCannotHold(t *testing.T) {
	for top, ok := range map[string]bool{
		"/opt/muster": true, "/srv/100% my $HOME agent": true, "/srv/müster": true,
		`/srv/"x"`: false, "/srv/it's": false, "/srv/{{x}}": false, "/srv/a\nb": false, "/srv/\x1b": false,
		"/tmp": false, "/tmp/x": false, "/var/tmp/x": false, "/tmpx": true,
	} {
		err := CheckFolder("--top", top)
		if (err == nil) != ok {
			t.Errorf("%q: %v", top, err)
		}
		if err != nil && !strings.Contains(err.Error(), "--top") {
			t.Errorf("%q: %v, which does not say what to do", top, err)
		}
	}
}

func TestLaunchdJobsAreXML(t *testing.T) {
	r := layout.Roots{Top: "/opt/a & b <c>"}
	for job, want := range map[string][]string{
		// launchd starts it again whenever it ends, as often as the watcher's rules expect.
		AgentLaunchd("muster-agent", r): {
			"Label", "muster-agent", "ProgramArguments", "/opt/a & b <c>/muster-agent", "run", "--top", "/opt/a & b <c>",
			"RunAtLoad", "true", "KeepAlive", "true", "ThrottleInterval", "10",
		},
		// It ends after the watch.
		WatcherLaunchd("muster-agent-watcher", r): {
			"Label", "muster-agent-watcher", "ProgramArguments", "/opt/a & b <c>/muster-watcher", "--top", "/opt/a & b <c>",
			"RunAtLoad", "true", "KeepAlive", "SuccessfulExit", "false",
		},
	} {
		if words := launchdWords(t, job); !slices.Equal(words, want) {
			t.Errorf("it says %q, want %q", words, want)
		}
	}
}

// launchdWords returns the keys and values of a job in order.
func launchdWords(t *testing.T, job string) (words []string) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(job)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return words
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, job)
		}
		switch token := token.(type) {
		case xml.StartElement:
			if token.Name.Local == "true" || token.Name.Local == "false" {
				words = append(words, token.Name.Local)
			}
		case xml.CharData:
			if s := strings.TrimSpace(string(token)); s != "" {
				words = append(words, s)
			}
		}
	}
}

// A shell reads these definitions.
func TestDefinitionsQuoteForTheShell(t *testing.T) {
	sh := require.Program(t, "sh")
	const top = `/srv/it's $HOME "x"`
	read := func(script string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), sh, "-c", script).Output()
		if err != nil {
			t.Fatalf("%v in\n%s", err, script)
		}
		return strings.TrimSpace(string(out))
	}
	want := top + "/muster-watcher|--top|" + top
	_, command, _ := strings.Cut(WatcherUpstart(layout.Roots{Top: top}), "\nexec ")
	if got := read(`set -- ` + strings.TrimSpace(command) + `; IFS='|'; echo "$*"`); got != want {
		t.Errorf("Upstart runs %q, want %q", got, want)
	}
	// openrc-run sources the file and evaluates the two words.
	if got := read(strings.TrimPrefix(WatcherOpenRC(layout.Roots{Top: top}), "#!/sbin/openrc-run\n") + `eval set -- '"$command"' "$command_args"; IFS='|'; echo "$*"`); got != want {
		t.Errorf("OpenRC runs %q, want %q", got, want)
	}
	agent := top + "/muster-agent|run|--top|" + top
	if got := read(strings.TrimPrefix(AgentOpenRC(layout.Roots{Top: top}), "#!/sbin/openrc-run\n") + `eval set -- '"$command"' "$command_args"; IFS='|'; echo "$*"`); got != agent {
		t.Errorf("OpenRC runs %q, want %q", got, agent)
	}
	assignments, _, _ := strings.Cut(AgentSysV("muster-agent-1", layout.Roots{Top: top}), "pidfile=")
	if got, want := read(assignments+`echo "$program|$top"`), top+"/muster-agent|"+top; got != want {
		t.Errorf("System V init runs %q, want %q", got, want)
	}
}

// manager is a systemd with one unit and the test's answers.
type manager struct {
	before, after string // of show
	startErr      error
	hangs         bool
	asked         []string
}

func (m *manager) ctl(ctx context.Context, args ...string) (string, error) {
	m.asked = append(m.asked, args[0])
	switch args[0] {
	case "show":
		if slices.Contains(m.asked, "restart") {
			return m.after, nil
		}
		return m.before, nil
	case "restart":
		if m.hangs {
			<-ctx.Done()
			return "", errors.New("signal: killed")
		}
		return "", m.startErr
	}
	return "", nil
}

func TestStartWatcherStopsAUnitThatDoesNotWatch(t *testing.T) {
	const loaded = "LoadState=loaded\nActiveState=inactive\nMainPID=0\n"
	failed := errors.New("Job for w.service failed")
	for what, test := range map[string]struct {
		m     manager
		pid   int
		err   error // nil is a watcher
		says  string
		order string
	}{
		"it watches":                      {manager{before: loaded, after: "ActiveState=active\nMainPID=17\n"}, 17, nil, "", "show restart show"},
		"one watches already":             {manager{before: "LoadState=loaded\nActiveState=active\nMainPID=16\n", after: "ActiveState=active\nMainPID=16\n"}, 16, nil, "", "show restart show"},
		"no unit":                         {manager{before: "LoadState=not-found\n"}, 0, ErrNoUnit, "not-found", "show"},
		"a masked unit":                   {manager{before: "LoadState=masked\n"}, 0, ErrNoUnit, "masked", "show"},
		"no marker":                       {manager{before: loaded, after: "ActiveState=inactive\nConditionResult=no\n"}, 0, ErrNothingToWatch, "", "show restart show"},
		"it fails":                        {manager{before: loaded, after: "ActiveState=activating\nResult=exit-code\n", startErr: failed}, 0, failed, "", "show restart show stop"},
		"it ends at once":                 {manager{before: loaded, after: "ActiveState=inactive\nConditionResult=yes\nResult=success\n"}, 0, failed, "has ended (success)", "show restart show stop"},
		"it does not say that it watches": {manager{before: loaded, hangs: true}, 0, failed, "in time", "show restart stop"},
	} {
		t.Run(what, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			w, err := start(ctx, test.m.ctl, "w.service")
			if (err == nil) != (test.err == nil) {
				t.Fatalf("error %v", err)
			}
			if err == nil && w.PID() != test.pid {
				t.Errorf("process %d, want %d", w.PID(), test.pid)
			}
			if err != nil && test.says == "" && !errors.Is(err, test.err) {
				t.Errorf("error %v, want %v", err, test.err)
			}
			if err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("error %v, want it to contain %q", err, test.says)
			}
			if got := strings.Join(test.m.asked, " "); got != test.order {
				t.Errorf("systemd was asked %s, want %s", got, test.order)
			}
		})
	}
}
