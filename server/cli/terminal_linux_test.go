package cli_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/cli"
)

// onTerminal runs a command whose output is a terminal, and returns what it shows. It
// presses Ctrl-C once the text last is shown.
func (o operator) onTerminal(last string, args ...string) string {
	o.t.Helper()
	code, text := o.atTerminal(last, "", "", args...)
	if code != 0 {
		o.t.Fatalf("muster %s: exit code %d: %s", strings.Join(args, " "), code, text)
	}
	return text
}

// answering runs a command whose input is a terminal too, and types the answer once the question
// is shown.
func (o operator) answering(question, answer string, args ...string) (code int, text string) {
	o.t.Helper()
	return o.atTerminal("", question, answer, args...)
}

func (o operator) atTerminal(last, question, answer string, args ...string) (code int, text string) {
	o.t.Helper()
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		o.t.Skip("this system has no pseudo-terminals: ", err)
	}
	defer terminal.Close()
	fd := int(terminal.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		o.t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		o.t.Fatal(err)
	}
	program, err := os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		o.t.Fatal(err)
	}
	cmd := cli.New(apptest.Version)
	cmd.SetArgs(args)
	cmd.SetOut(program)
	cmd.SetErr(program)
	if question != "" {
		cmd.SetIn(program)
	}
	ctx, cancel := context.WithTimeout(o.t.Context(), apptest.WaitLimit)
	defer cancel()
	shown := make(chan string, 1)
	go func() {
		var text []byte
		buf := make([]byte, 4096)
		asked := question == ""
		for {
			n, err := terminal.Read(buf)
			text = append(text, buf[:n]...)
			if last != "" && strings.Contains(string(text), last) {
				cancel()
			}
			if !asked && strings.Contains(string(text), question) {
				asked = true
				if _, err := terminal.WriteString(answer + "\n"); err != nil {
					o.t.Error(err)
				}
			}
			if err != nil { // EIO when the program has closed its side
				shown <- string(text)
				return
			}
		}
	}()
	code = cli.Run(ctx, cmd)
	program.Close()
	return code, strings.ReplaceAll(<-shown, "\r\n", "\n")
}

func TestSecretsAreShownOnATerminal(t *testing.T) {
	o, s := loggedIn(t)
	key := strings.TrimSpace(o.onTerminal("", "admin-keys", "create", "ann"))
	t.Setenv("MUSTER_API_KEY", key)
	o.run("status")
	text := o.onTerminal("", "keys", "create")
	token, _, _ := strings.Cut(text, "\n")
	o.contains(text, `MUSTER_ENROLLMENT_TOKEN="`+token+`" ./data/*/muster-agent install --url `)
	s.Token = token
	s.Enroll("web-01", "1.0.0")
}

func TestFirstStartShowsTheAdminKeyOnATerminal(t *testing.T) {
	o := newOperator(t)
	data := t.TempDir()
	text := o.onTerminal("muster keys create`.", "server", "--data", data, "--agents-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
	_, rest, _ := strings.Cut(text, "shown only once:\n\n  ")
	key, _, _ := strings.Cut(rest, "\n")
	if key == "" || !strings.Contains(text, "/login#key="+key) || !strings.Contains(text, "muster login --url") {
		t.Errorf("the first start shows\n%s", text)
	}
	if files, err := filepath.Glob(filepath.Join(data, "first-*")); err != nil || len(files) > 0 {
		t.Errorf("it wrote %v, %v", files, err)
	}
}

func TestPruneAsksOnATerminal(t *testing.T) {
	o, _ := loggedIn(t, quick)
	o.tryWith(fleetDoc("web", "1.1.0")+"---\n"+fleetDoc("db", "1.1.0"), "apply", "-f", "-")
	prune := []string{"apply", "-f", o.file("web.yaml", fleetDoc("web", "1.2.0")), "--prune", "--selector", "stage=prod"}
	code, text := o.answering("Go on? [y/N]", "n", prune...)
	o.contains(text, "are deleted: db.", "nothing was applied")
	if names := fleetNames(o); code != 1 || names != "fleet/db fleet/web" || fleetOf(o, "web").Metadata.Generation != 1 {
		t.Fatalf("after a no: exit code %d, %s", code, names)
	}
	code, text = o.answering("Go on? [y/N]", "y", prune...)
	o.contains(text, "fleet/web configured", "fleet/db pruned")
	if names := fleetNames(o); code != 0 || names != "fleet/web" {
		t.Errorf("after a yes: exit code %d, %s", code, names)
	}
	code, text = o.answering("Delete fleet/web?", "y", "delete", "fleet", "web")
	if names := fleetNames(o); code != 0 || names != "" {
		t.Errorf("after the deletion: exit code %d, %s, %s", code, names, text)
	}
}

func TestTakeOverAsksForTheNameOnATerminal(t *testing.T) {
	o, s := loggedIn(t, quick)
	s.Publisher().Publish("1.1.0", "1.2.0")
	a := s.Enroll("web-01", "1.1.0")
	a.MustCheckin(nil)
	o.run("apply", "-f", o.file("web.yaml", fleetDoc("web", "1.1.0")))
	upgrade := []string{"agents", "upgrade", a.ID, "--version", "1.2.0"}
	code, text := o.answering("type its name: ", "", upgrade...)
	if code != 1 || !strings.Contains(text, "nothing was ordered") {
		t.Fatalf("without a name: exit code %d, %s", code, text)
	}
	code, text = o.answering("type its name: ", "web", upgrade...)
	o.contains(text, "Upgrading 1 of 1 agent to 1.2.0")
	if f := fleetOf(o, "web"); code != 0 || f.Status.Suspended == nil {
		t.Errorf("exit code %d, status %+v", code, f.Status)
	}
}
